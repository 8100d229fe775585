// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
)

// TestChunkErrors: invalid chunks are rejected with a reason.
func TestChunkErrors(t *testing.T) {
	var a appStreams
	for _, c := range []struct {
		chunk api.Chunk
		kind  fault.Kind
	}{
		{api.Chunk{App: "somewhere", Bytes: 1}, fault.Usage},
		{api.Chunk{App: "127.0.0.1:1"}, fault.Usage},
		{api.Chunk{App: "127.0.0.1:1", Bytes: -1}, fault.Usage},
		{api.Chunk{App: "127.0.0.1:1", Bytes: 1}, fault.NotFound},
	} {
		if err := a.applyAppChunk(c.chunk); !fault.Is(err, c.kind) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v, want a fault of kind %s with a hint", c.chunk, err, c.kind)
		}
	}
}
