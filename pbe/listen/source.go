// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"time"

	"mpbond/pbe/source"
)

// messageKind describes sources of control messages. Cells report every millisecond, so a
// connection that is silent for 5 s is dead.
var messageKind = source.Kind{Content: "control messages", FileNoun: "a recording", IdleTimeout: 5 * time.Second}

// Source is a source of control messages in the format of a recording (package cell).
type Source = source.Source

// ParseSource parses "unix:PATH", "tcp:HOST:PORT", or the path of a file or FIFO.
func ParseSource(text string) (Source, error) { return messageKind.Parse(text) }
