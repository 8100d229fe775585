// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
)

// Received is what the receiving end saw of one transfer.
type Received struct {
	Bytes int64   `json:"bytes"`
	SHA   string  `json:"sha256"`
	Gap   float64 `json:"gap"` // longest time without a byte, after the first
}

// byteCounter counts the bytes of a running transfer. It is safe for concurrent use.
type byteCounter struct{ n atomic.Int64 }

func (m *byteCounter) countedBytes() unit.Bytes { return unit.Bytes(m.n.Load()) }

// receiveAll reads r to its end. With a length, later bytes do not count.
func receiveAll(r io.Reader, m *byteCounter, length time.Duration) (Received, error) {
	hash, buf := sha256.New(), make([]byte, 1<<16)
	var got Received
	var last time.Time
	begin := time.Now()
	for {
		n, err := r.Read(buf)
		if now := time.Now(); n > 0 && (length == 0 || now.Sub(begin) <= length) {
			if got.Bytes > 0 {
				got.Gap = max(got.Gap, now.Sub(last).Seconds())
			}
			last = now
			got.Bytes += int64(n)
			m.n.Add(int64(n))
			hash.Write(buf[:n])
		}
		if err != nil {
			got.SHA = hex.EncodeToString(hash.Sum(nil))
			if err == io.EOF {
				err = nil
			}
			return got, err
		}
	}
}

// lastReportPath is where the sink reports the last upload.
const lastReportPath = "/last"

// RunSink serves uploads until ctx ends. It reads the body of any request and answers with
// Received. With "?seconds=S" only bytes within that time count. /last reports an upload that was
// broken off. The listener speaks MPTCP with clients that ask for it.
func RunSink(ctx context.Context, addr string) error {
	var mu sync.Mutex
	var last Received
	s := &http.Server{Addr: addr, ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == lastReportPath {
				mu.Lock()
				defer mu.Unlock()
				_ = json.NewEncoder(w).Encode(last)
				return
			}
			length, _ := time.ParseDuration(r.URL.Query().Get("seconds") + "s") // 0 if it is missing
			if length > 0 {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(length))
			}
			got, err := receiveAll(r.Body, &byteCounter{}, length)
			mu.Lock()
			last = got
			mu.Unlock()
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_ = json.NewEncoder(w).Encode(got)
		})}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	return s.ListenAndServe()
}
