// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"time"
)

// Duration is a time.Duration written like "60s" in a configuration.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(t []byte) error {
	v, err := time.ParseDuration(string(t))
	if _, number := strconv.ParseFloat(string(t), 64); err != nil && number == nil {
		return fmt.Errorf("%s has no unit (write it like \"%[1]ss\")", t)
	} else if err != nil {
		return fmt.Errorf("%q is not a time (write it like \"60s\")", t)
	}
	*d = Duration(v)
	return nil
}
