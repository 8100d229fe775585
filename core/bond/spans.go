package bond

import (
	"mpbond/base/span"
	"mpbond/link/wire"
)

// Ranges of a stream's bytes, by their positions in it.
type (
	seqSpan = span.Span[wire.DataSeq]
	seqSet  = span.Set[wire.DataSeq]
)
