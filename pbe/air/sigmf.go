// SPDX-License-Identifier: Apache-2.0

package air

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"mpbond/base/fault"
)

// Endings of a recording in SigMF, the Signal Metadata Format (sigmf.org, version 1).
const (
	sigmfData = ".sigmf-data"
	sigmfMeta = ".sigmf-meta"
)

// maxMetadata bounds the metadata that are read.
const maxMetadata = 16 << 20

// sigmfFormats are the formats by their names in SigMF.
var sigmfFormats = map[string]Format{"cf32_le": CF32, "ci16_le": SC16, "cu8": CU8, "ci8": SC8}

// IsSigMF reports whether a name is that of a recording in SigMF.
func IsSigMF(name string) bool {
	return strings.HasSuffix(name, sigmfData) || strings.HasSuffix(name, sigmfMeta)
}

// SamplesOf returns the file of the samples if a name is that of SigMF metadata, else the name.
func SamplesOf(name string) string {
	if base, isMeta := strings.CutSuffix(name, sigmfMeta); isMeta {
		return base + sigmfData
	}
	return name
}

// fillFromSigMF sets the format and the rate that the metadata of a recording in SigMF name, unless they are given.
// The source may be the file of the samples or that of the metadata.
func (in *Input) fillFromSigMF() error {
	isData := strings.HasSuffix(in.Source, sigmfData)
	in.Source = SamplesOf(in.Source)
	base, isSigMF := strings.CutSuffix(in.Source, sigmfData)
	if !isSigMF {
		return nil
	}
	f, err := os.Open(base + sigmfMeta)
	if errors.Is(err, fs.ErrNotExist) && isData {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var meta struct {
		Global struct {
			Datatype string  `json:"core:datatype"`
			Rate     float64 `json:"core:sample_rate"`
			Channels int     `json:"core:num_channels"`
		} `json:"global"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxMetadata)).Decode(&meta); err != nil {
		return fault.New(fault.Integrity, fmt.Errorf("%s: these are no SigMF metadata: %w", base+sigmfMeta, err),
			"repair the file, or pass the samples under another name with --format and --rate")
	}
	format, known := sigmfFormats[meta.Global.Datatype]
	switch {
	case meta.Global.Channels > 1:
		return fault.New(fault.Unsupported, fmt.Errorf("the recording has %d channels", meta.Global.Channels),
			"record each carrier in a file of its own")
	case in.Format == AnyFormat && !known:
		return fault.New(fault.Unsupported, fmt.Errorf("unsupported datatype %q", meta.Global.Datatype),
			"record cf32_le, ci16_le, cu8 or ci8")
	case in.Format == AnyFormat:
		in.Format = format
	}
	if in.Rate == 0 && meta.Global.Rate >= 1 && meta.Global.Rate < 1e9 {
		in.Rate = int(math.Round(meta.Global.Rate))
	}
	return nil
}
