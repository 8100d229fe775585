package listen

import (
	"time"

	open "mpbond/pbe/source"
)

// messageKind are sources of control messages, as recordings. Cells tell something each
// millisecond, so the other end of a connection that is silent for 5 s is gone.
var messageKind = open.Kind{Content: "control messages", FileNoun: "a recording", IdleTimeout: 5 * time.Second}

// Source is where control messages come from, as a recording (package cell).
type Source = open.Source

// ParseSource reads "unix:PATH", "tcp:HOST:PORT", or the path of a file or FIFO.
func ParseSource(text string) (Source, error) { return messageKind.Parse(text) }
