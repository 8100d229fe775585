// SPDX-License-Identifier: Apache-2.0

package air

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"mpbond/base/fault"
)

// Format is the encoding of samples, I before Q.
type Format uint8

// Formats.
const (
	AnyFormat Format = iota // chosen by the name's ending
	CF32                    // float32, little-endian
	SC16                    // int16, little-endian
	CU8                     // bytes, 127.5 for zero
	SC8                     // int8
)

var formatTable = [...]struct {
	name    string
	size    int // bytes per sample
	endings []string
}{
	CF32: {"cf32", 8, []string{".cf32", ".fc32", ".cfile", ".iq32"}},
	SC16: {"sc16", 4, []string{".sc16", ".cs16", ".iq16"}},
	CU8:  {"cu8", 2, []string{".cu8", ".cu08"}},
	SC8:  {"sc8", 2, []string{".sc8", ".cs8", ".ci8"}},
}

// FormatNames are the names that ParseFormat accepts.
var FormatNames = []string{"cf32", "sc16", "cu8", "sc8"}

// formatHint names the formats.
const formatHint = "set --format: cf32, sc16, cu8 or sc8"

// ParseFormat parses one of FormatNames, or "" for AnyFormat.
func ParseFormat(text string) (Format, error) {
	if text == "" {
		return AnyFormat, nil
	}
	for f := CF32; int(f) < len(formatTable); f++ {
		if formatTable[f].name == text {
			return f, nil
		}
	}
	return AnyFormat, fault.New(fault.Usage, fmt.Errorf("unknown sample format %q", text),
		"use one of "+strings.Join(FormatNames, ", "))
}

// FormatOf returns the format for the ending of a name, or AnyFormat.
func FormatOf(name string) Format {
	ending := strings.ToLower(filepath.Ext(name))
	for f := CF32; int(f) < len(formatTable); f++ {
		for _, e := range formatTable[f].endings {
			if e == ending {
				return f
			}
		}
	}
	return AnyFormat
}

// String returns the name for ParseFormat.
func (f Format) String() string { return formatTable[f].name }

// Size returns the number of bytes per sample.
func (f Format) Size() int { return formatTable[f].size }

// Decode appends the whole samples in b to out.
func (f Format) Decode(out []complex64, b []byte) []complex64 {
	n := len(b) / f.Size()
	out = slices.Grow(out, n)[:len(out)+n]
	to := out[len(out)-n:]
	switch f {
	case CF32:
		for i := range to {
			v := binary.LittleEndian.Uint64(b[8*i:])
			to[i] = complex(math.Float32frombits(uint32(v)), math.Float32frombits(uint32(v>>32)))
		}
	case SC16:
		for i := range to {
			v := binary.LittleEndian.Uint32(b[4*i:])
			to[i] = complex(float32(int16(v))/(1<<15), float32(int16(v>>16))/(1<<15))
		}
	case CU8:
		for i := range to {
			v := binary.LittleEndian.Uint16(b[2*i:])
			to[i] = complex((float32(uint8(v))-127.5)/128, (float32(v>>8)-127.5)/128)
		}
	case SC8:
		for i := range to {
			to[i] = complex(float32(int8(b[2*i]))/128, float32(int8(b[2*i+1]))/128)
		}
	}
	return out
}
