// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mpbond/base/userfile"
)

// loadPageTimeout bounds the request for a web page with a load.
const loadPageTimeout = 2 * time.Second

// maxLoadPage bounds the size of a page with a load.
const maxLoadPage = 1 << 10

// ReadLoad reads a load from a file or web page, which must not be older than 30 s.
func ReadLoad(ctx context.Context, at string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, loadPageTimeout)
	defer cancel()
	open := openLoadFile
	if strings.HasPrefix(at, "http://") || strings.HasPrefix(at, "https://") {
		open = openLoadPage
	}
	in, err := open(ctx, at)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxLoadPage))
	if err != nil {
		return 0, err
	}
	return ParseLoad(strings.TrimSpace(string(text)))
}

// openLoadPage opens a web page with a load.
func openLoadPage(ctx context.Context, at string) (io.ReadCloser, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", at, a.Status)
	} else {
		err = checkPageAge(at, a.Header)
	}
	if err != nil {
		a.Body.Close()
		return nil, err
	}
	return a.Body, nil
}

// openLoadFile opens a file with a load.
func openLoadFile(_ context.Context, at string) (io.ReadCloser, error) {
	st, err := userfile.Stat(at)
	if err != nil {
		return nil, err
	}
	if age := time.Since(st.ModTime()); age > maxLoadAge {
		return nil, fmt.Errorf("%s was written %v ago", at, age.Round(time.Second))
	}
	return userfile.Open(at)
}

// checkPageAge returns an error if a page is too old by the clock of its server. A page without
// Last-Modified counts as generated now.
func checkPageAge(at string, h http.Header) error {
	changed, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return nil
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	if seconds, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil { // time in caches
		now = now.Add(time.Duration(seconds) * time.Second)
	}
	if age := now.Sub(changed); age > maxLoadAge {
		return fmt.Errorf("%s was written %v ago", at, age)
	}
	return nil
}

// maxLoadAge bounds the age of a file or page with a load.
const maxLoadAge = 30 * time.Second

// ParseLoad parses a load like 0.42 or 42%.
func ParseLoad(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	load, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if percent {
		load /= 100
	}
	if err != nil || !(load >= 0 && load <= 1) {
		return 0, fmt.Errorf("invalid load %.40q: want 0 to 1, or 0%% to 100%%", text)
	}
	return load, nil
}
