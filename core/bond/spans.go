// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"mpbond/base/span"
	"mpbond/link/wire"
)

// Ranges of positions in a stream.
type (
	seqSpan = span.Span[wire.DataSeq]
	seqSet  = span.Set[wire.DataSeq]
)
