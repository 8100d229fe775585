// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"mpbond/base/unit"
	"mpbond/base/userfile"
)

// readStateFile reads the JSON of a file into a value and checks it, unless there is no file. A file
// that is too large, or has other content, is renamed to FILE.bad.
func readStateFile(file string, limit unit.Bytes, into any, check func() error) error {
	f, err := userfile.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, int64(limit)+1))
		_ = f.Close()
	}
	if err != nil {
		return err
	}
	if unit.Bytes(len(data)) > limit {
		err = errors.New("it is too large")
	} else if err = json.Unmarshal(data, into); err == nil {
		err = check()
	}
	if err != nil {
		aside := file + ".bad"
		if moved := userfile.Rename(file, aside); moved != nil {
			return fmt.Errorf("%s: %w; cannot move it aside: %w", file, err, moved)
		}
		return fmt.Errorf("%s: %w; moved to %s", file, err, aside)
	}
	return nil
}
