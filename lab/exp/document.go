package exp

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"mpbond/base/fault"
)

// Lines between which a document holds what was measured.
const (
	DocumentBegin = "<!-- bench -->"
	DocumentEnd   = "<!-- end of bench -->"
)

// WriteDocument writes text into a file: between its lines DocumentBegin and DocumentEnd,
// or just these if there is no such file. It may stand for os.WriteFile.
func WriteDocument(file string, text []byte, perm os.FileMode) error {
	begin, end := DocumentBegin+"\n", DocumentEnd+"\n"
	old, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		old, err = []byte(begin+end), nil
	}
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fault.New(fault.Exists, fmt.Errorf("%s is there and has no place for the tables", file),
			"put the lines "+DocumentBegin+" and "+DocumentEnd+" into it, or name another file")
	}
	return os.WriteFile(file, []byte(before+begin+string(text)+end+after), perm)
}
