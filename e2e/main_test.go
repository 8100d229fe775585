package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/lab"
)

// The lab starts its own binary as daemon and guard; in tests that is the test
// binary. It is the web server of the lab too.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		if err := program(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/exec.(*Cmd).Wait")) // of the lab's daemon, for a moment
}

func program(args []string) error {
	switch args[0] {
	case "daemon":
		return lab.Daemon(os.Stdin, os.Stdout)
	case "guard":
		return lab.Guard(os.Stdin, args[1])
	case "hold", "streams":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		if args[0] == "hold" {
			return hold(n, args[2], args[3], os.Stdin, os.Stdout)
		}
		return lab.Streams{URL: args[3], N: n, SOCKS: args[2]}.Run(context.Background(), os.Stdout, os.Stderr)
	case "web":
		return http.ListenAndServe(args[1], http.HandlerFunc(serveHTTP))
	case "portal":
		return http.ListenAndServe(args[1], http.HandlerFunc(portalPage))
	case "services":
		return services()
	case "ping":
		return ping(args[1], args[2])
	case "probe":
		return probe(args[1], args[2])
	}
	return fmt.Errorf("unknown program %q", args)
}

// serveHTTP sends as many bytes of noise as the path says, or of zeros, which
// cost nothing, if it begins with zeros/, and answers uploads
// with what sum makes of them.
func serveHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		got, err := sum(r.Body)
		if err == nil {
			_, _ = io.WriteString(rw, got)
		}
		return
	}
	if r.URL.Path == "/idle" { // says a little, and then nothing
		_, _ = io.Copy(rw, noise(1000))
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
		return
	}
	path, cheap := strings.CutPrefix(r.URL.Path[1:], "zeros/")
	n, err := strconv.ParseInt(path, 10, 64)
	if err != nil {
		http.NotFound(rw, r)
		return
	}
	rw.Header().Set("Content-Length", path)
	if r.URL.Query().Has("paced") { // 10 KB each 40 ms: 2 Mbit/s
		for tick := time.NewTicker(40 * time.Millisecond); n > 0; n -= 10_000 {
			<-tick.C
			if _, err := rw.Write(make([]byte, min(n, 10_000))); err != nil {
				return
			}
			_ = http.NewResponseController(rw).Flush()
		}
		return
	}
	if !cheap {
		_, _ = io.Copy(rw, noise(n))
		return
	}
	for b := make([]byte, mb); n > 0; n -= int64(len(b)) {
		if _, err := rw.Write(b[:min(n, int64(len(b)))]); err != nil {
			return
		}
	}
}
