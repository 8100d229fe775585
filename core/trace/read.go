// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// maxLine bounds the length of a line of a trace.
const maxLine = 1 << 20

// Read yields the events of a trace. It omits an unfinished last line, which a killed process
// leaves. Any other malformed line yields an error and ends the sequence. Unknown fields and kinds
// are allowed.
func Read(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		in := newLineReader(r)
		for in.nextTraceLine() {
			var e Event
			err := json.Unmarshal(in.line, &e)
			if err != nil {
				err = fmt.Errorf("trace, line %d: %w", in.number, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if in.err != nil {
			yield(Event{}, in.err)
		}
	}
}

// Merge writes the lines of several traces to w in the order of their times. It keeps the order
// within each file, even where concurrent writers were out of order by some microseconds. It holds
// one line per file in memory.
func Merge(w io.Writer, files ...io.Reader) error {
	var h byTime
	for i, f := range files {
		in := newLineReader(f)
		in.index = i
		if in.nextTraceLine() {
			h = append(h, in)
		} else if in.err != nil {
			return fmt.Errorf("file %d: %w", i+1, in.err)
		}
	}
	heap.Init(&h)
	out := bufio.NewWriter(w)
	for len(h) > 0 {
		in := h[0]
		_, _ = out.Write(in.line) // an error stays in out for Flush
		_ = out.WriteByte('\n')
		if in.nextTraceLine() {
			heap.Fix(&h, 0)
			continue
		}
		if in.err != nil {
			return fmt.Errorf("file %d: %w", in.index+1, in.err)
		}
		heap.Pop(&h)
	}
	return out.Flush()
}

// lineReader reads the lines of one trace.
type lineReader struct {
	r      *bufio.Reader
	index  int    // index of the file, orders lines of equal time
	number int    // of the current line, from 1
	line   []byte // without its line end; never reused
	t      int64  // time of the current line
	err    error
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReader(r)} }

// nextTraceLine reads the next line. It returns false at the end and on an error.
func (in *lineReader) nextTraceLine() bool {
	for {
		line, err := in.readBoundedLine()
		if err == io.EOF {
			return false // text behind the last line end is an unfinished line
		}
		in.number++
		if err != nil {
			in.err = fmt.Errorf("trace, line %d: %w", in.number, err)
			return false
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var head struct {
			T *int64 `json:"t"`
		}
		if err = json.Unmarshal(line, &head); err == nil && head.T == nil {
			err = fmt.Errorf("event without time")
		}
		if err != nil {
			in.err = fmt.Errorf("trace, line %d: %w", in.number, err)
			return false
		}
		in.line, in.t = line, *head.T
		return true
	}
}

// readBoundedLine reads one line of at most maxLine bytes.
func (in *lineReader) readBoundedLine() ([]byte, error) {
	var line []byte
	for {
		part, err := in.r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// byTime is a heap of files, ordered by the time of their current lines.
type byTime []*lineReader

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	return h[i].t < h[j].t || h[i].t == h[j].t && h[i].index < h[j].index
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)   { *h = append(*h, x.(*lineReader)) }
func (h *byTime) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
