// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"mpbond/base/fault"
)

// Lines around the measured tables in a document.
const (
	DocumentBegin = "<!-- bench -->"
	DocumentEnd   = "<!-- end of bench -->"
)

// WriteDocument replaces the text between the lines DocumentBegin and DocumentEnd of a file. A
// missing file is created with these lines. Its signature is that of os.WriteFile.
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
		return fault.New(fault.Exists, fmt.Errorf("%s exists and has no place for the tables", file),
			"put the lines "+DocumentBegin+" and "+DocumentEnd+" into it, or name another file")
	}
	return os.WriteFile(file, []byte(before+begin+string(text)+end+after), perm)
}
