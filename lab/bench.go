// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
)

// Ports of the web node.
const (
	webPort  = 80   // nginx: downloads
	sinkPort = 8081 // RunSink: uploads
)

// Bench is a lab in which transfers are measured. It has the lab, a scratch directory that is
// removed with it, and the programs that run now.
type Bench struct {
	Lab  *Lab
	Dir  string
	Seed uint64
	// LogDir keeps the output of programs, one file for each, and the events of mpbond processes.
	// Empty: nothing is kept.
	LogDir string

	running     []*program
	hashes      map[string][32]byte // SHA-256 by path
	hasItems    bool                // a transfer moves several items
	onloadHomes *deviceHomes        // nil until setupOnloadTrust makes them
	app         *appFiles           // nil unless transfers play scripts of apps
}

// program is a process that the bench started in a node.
type program struct {
	node string
	name string
	cmd  *exec.Cmd
	done chan struct{}
	out  *outputTail
}

// withBenchInNewLab brings up a lab for f. It stops every program that f started and takes the lab
// down afterwards.
func withBenchInNewLab(t *Topology, o Options, seed uint64, f func(*Bench) error) (err error) {
	o.Name, o.EndWithProcess = uniqueName(o.Name), true
	l, err := Up(t, o)
	if err != nil {
		return err
	}
	b := newBenchInLab(l, seed)
	defer func() {
		b.StopAll()
		err = cmp.Or(err, l.Down())
	}()
	return f(b)
}

// newBenchInLab returns a bench in a lab that is up.
func newBenchInLab(l *Lab, seed uint64) *Bench {
	return &Bench{Lab: l, Dir: filepath.Join(l.dir, "bench"), Seed: seed, hashes: map[string][32]byte{}}
}

// prepareDir makes the bench's directory and checks that the topology has all nodes that transfers
// need.
func (b *Bench) prepareDir() error {
	for _, n := range []string{"primary", "server", "web"} {
		if b.Lab.Topology.Node[n] == nil {
			return fmt.Errorf("the topology has no node %q, which runs need", n)
		}
	}
	return os.MkdirAll(filepath.Join(b.Dir, itemsDir), 0o755)
}

// Run runs a program in a node until it exits and returns its standard output.
func (b *Bench) Run(ctx context.Context, node string, argv ...string) (string, error) {
	cmd, err := b.Lab.Command(ctx, node, argv...)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, stopTimeout
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w: %s", node, strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// Spawn starts a program in a node. If port is not 0, it waits until the program listens on that
// TCP port. env is added to this process's environment. StopAll ends the program.
func (b *Bench) Spawn(ctx context.Context, node string, port int, env []string, argv ...string) error {
	cmd, err := b.Lab.Command(context.Background(), node, argv...)
	if err != nil {
		return err
	}
	p := &program{node: node, name: node + ": " + filepath.Base(argv[0]), cmd: cmd, done: make(chan struct{}),
		out: &outputTail{}}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr, cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, stopTimeout
	var file *os.File
	if b.LogDir != "" {
		name := fmt.Sprintf("%s-%s-%d.log", node, filepath.Base(argv[0]), len(b.running))
		if file, err = os.Create(filepath.Join(b.LogDir, name)); err != nil {
			return err
		}
		cmd.Stdout = io.MultiWriter(p.out, file)
		cmd.Stderr = cmd.Stdout
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		_ = cmd.Wait()
		_ = file.Close() // a nil file is allowed
		close(p.done)
	}()
	b.running = append(b.running, p)
	if port == 0 {
		return nil
	}
	return p.waitForListen(ctx, port)
}

// SpawnSelf is like Spawn for a command of this program's hidden group "lab".
func (b *Bench) SpawnSelf(ctx context.Context, node string, port int, args ...string) error {
	return b.Spawn(ctx, node, port, nil, labCommand(args...)...)
}

// labCommand returns the arguments of a command of this program's hidden group "lab".
func labCommand(args ...string) []string {
	self, _ := os.Executable() // if this fails, so does the command
	return append([]string{self, "lab"}, args...)
}

// pollUntil calls f at each interval until f returns true or an error, or ctx ends. It returns the
// error of f or of ctx.
func pollUntil(ctx context.Context, every time.Duration, f func() (bool, error)) error {
	for {
		if done, err := f(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// waitForListen waits until something in the program's network namespace listens on the port.
func (p *program) waitForListen(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := pollUntil(ctx, 5*time.Millisecond, func() (bool, error) {
		select {
		case <-p.done:
			return false, errors.New("it exited at once")
		default:
			return isListening(p.cmd.Process.Pid, port), nil
		}
	})
	if err != nil {
		return fmt.Errorf("%s does not listen on port %d: %w: %s", p.name, port, err, p.out)
	}
	return nil
}

// isListening reports whether something in the network namespace of a process listens on a TCP
// port.
func isListening(pid, port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, f := range []string{"tcp", "tcp6"} {
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, f))
		for line := range strings.Lines(string(table)) {
			if c := strings.Fields(line); len(c) > 3 && c[3] == "0A" && strings.HasSuffix(c[1], want) {
				return true
			}
		}
	}
	return false
}

// recentOutput returns the end of the output of all running programs, for error texts.
func (b *Bench) recentOutput() (text string) {
	for _, p := range b.running {
		if s := p.out.String(); s != "" {
			text += "\n-- " + p.name + "\n" + s
		}
	}
	return text
}

// peakRSSByNode returns the peak resident memory of running programs by node, without the web node.
func (b *Bench) peakRSSByNode() map[string]unit.Bytes {
	peak := map[string]unit.Bytes{}
	for _, p := range b.running {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		if err != nil || p.node == "web" {
			continue
		}
		for line := range strings.Lines(string(status)) {
			var kib unit.Bytes
			if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
				peak[p.node] += kib << 10
			}
		}
	}
	return peak
}

// cpuTimeByNode returns the processor time that running programs have used so far by node, without
// the web node.
func (b *Bench) cpuTimeByNode() map[string]time.Duration {
	used := map[string]time.Duration{}
	for _, p := range b.running {
		if p.node != "web" {
			used[p.node] += processCPUTime(p.cmd.Process.Pid)
		}
	}
	return used
}

// processorWaits returns how long the threads of running programs have waited for a processor so
// far by node, added up.
func (b *Bench) processorWaits() map[string]time.Duration {
	waited := map[string]time.Duration{}
	for _, p := range b.running {
		waited[p.node] += processorWait(p.cmd.Process.Pid)
	}
	return waited
}

// stopTimeout is how long a program may take to exit after SIGTERM.
const stopTimeout = 3 * time.Second

// StopAll stops all spawned programs, the last one first.
func (b *Bench) StopAll() {
	for i := len(b.running) - 1; i >= 0; i-- {
		p := b.running[i]
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(stopTimeout):
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
	b.running = nil
}

// mergeTraces merges the event traces that processes left in LogDir (*-trace.jsonl) into
// events.jsonl, in order of time.
func (b *Bench) mergeTraces() error {
	if b.LogDir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(b.LogDir, "*-trace.jsonl"))
	if err != nil || len(files) == 0 {
		return err
	}
	var in []io.Reader
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = append(in, f)
	}
	out, err := os.Create(filepath.Join(b.LogDir, "events.jsonl"))
	if err != nil {
		return err
	}
	return errors.Join(trace.Merge(out, in...), out.Close())
}

// nginxConf is the configuration of a plain server of static files. nginx runs as root of its
// namespace, so that the lab of an ordinary user can run it too.
const nginxConf = `user root;
worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log stderr;
worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
%[3]s  sendfile on;
  client_body_temp_path %[1]s/t1; proxy_temp_path %[1]s/t2; fastcgi_temp_path %[1]s/t3;
  uwsgi_temp_path %[1]s/t4; scgi_temp_path %[1]s/t5;
  server { listen %[2]d; listen [::]:%[2]d; root %[1]s/www; }
}
`

// StartWeb starts nginx and the sink for uploads on the web node. If a wrapper is given, nginx runs
// behind that command.
func (b *Bench) StartWeb(ctx context.Context, wrapper ...string) error {
	conf := filepath.Join(b.Dir, "nginx.conf")
	how := "  access_log off;\n"
	if b.hasItems {
		how = fmt.Sprintf(itemsNginxConf, b.Dir)
		if err := b.clearItemDirs(); err != nil {
			return err
		}
	}
	how += b.app.nginxServer()
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, b.Dir, webPort, how), 0o644); err != nil {
		return err
	}
	nginx := append(append([]string{}, wrapper...), "nginx", "-c", conf, "-e", "stderr")
	if err := b.Spawn(ctx, "web", webPort, nil, nginx...); err != nil {
		return fmt.Errorf("%w (is nginx installed?)", err)
	}
	if b.app != nil {
		if err := b.SpawnSelf(ctx, "web", exchangePort, "exchange", ":"+strconv.Itoa(exchangePort),
			b.app.blob); err != nil {
			return err
		}
	}
	return b.SpawnSelf(ctx, "web", sinkPort, "sink", ":"+strconv.Itoa(sinkPort))
}

// MakeFile makes the file of a size below the web server's root, unless it exists. Its content is
// random by the bench's seed: the same size gives the same file. MakeFile returns the path and
// SHA-256.
func (b *Bench) MakeFile(size unit.Bytes) (string, [32]byte, error) {
	return b.makeContent(b.filePathForSize(size), 0, size)
}

// filePathForSize returns the path of the file of a size.
func (b *Bench) filePathForSize(size unit.Bytes) string {
	return filepath.Join(b.Dir, "www", fileNameForSize(size))
}

// fileURLForSize returns the URL of the file of a size.
func (b *Bench) fileURLForSize(size unit.Bytes) string {
	return b.webNodeURL() + "/" + fileNameForSize(size)
}

// webNodeURL returns the web node's URL, with its IP address.
func (b *Bench) webNodeURL() string {
	addr, _ := b.Lab.Topology.Addr("web", "")
	return fmt.Sprintf("http://%s:%d", addr, webPort)
}

// fileNameForSize returns the name of the file of a size.
func fileNameForSize(size unit.Bytes) string { return strconv.FormatInt(int64(size), 10) }

// makeContent makes a file with random content, unless it exists. The content depends on the
// bench's seed and on which, the number of the file.
func (b *Bench) makeContent(path string, which uint64, size unit.Bytes) (string, [32]byte, error) {
	if h, ok := b.hashes[path]; ok {
		return path, h, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return "", [32]byte{}, err
	}
	defer f.Close()
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], b.Seed)
	binary.LittleEndian.PutUint64(seed[8:], which)
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, hash), rand.NewChaCha8(seed), int64(size)); err != nil {
		return "", [32]byte{}, fmt.Errorf("file of %v: %w", size, err)
	}
	b.hashes[path] = [32]byte(hash.Sum(nil))
	return path, b.hashes[path], nil
}

// curlFormat makes curl write its timing to standard error, for parseCurlReport.
const curlFormat = "curl-report %{time_total} %{time_starttransfer} %{http_code} %{size_download}"

// FetchCommand returns the plain command that makes a transfer and writes the received bytes to
// standard output. It is curl; the lab's own client for several streams; or the lab's player. Both
// accept the curl options that schemes add. The command names the web node by IP address, so that
// schemes do not differ in name lookup.
func (b *Bench) FetchCommand(t Transfer) []string {
	if t.Video != nil {
		return b.playerCommand(t)
	}
	if t.App != nil {
		return b.appCommand(t)
	}
	url := b.fileURLForSize(t.Size)
	if t.Streams > 1 {
		return labCommand("streams", "--streams", strconv.Itoa(t.Streams), url)
	}
	args := []string{"curl", "-sS", "--noproxy", "", "--max-time", t.curlMaxTime(), "-w", "%{stderr}" + curlFormat +
		`\n`}
	switch {
	case len(t.Items) > 0:
		return b.curlItemArgs(args, t)
	case t.Upload:
		addr, _ := b.Lab.Topology.Addr("web", "")
		sink := fmt.Sprintf("http://%s:%d/", addr, sinkPort)
		if t.Length > 0 {
			sink += fmt.Sprintf("?seconds=%g", t.Length.Seconds())
		}
		return append(args, "-H", "Expect:", "-T", b.filePathForSize(t.Size), sink)
	case t.Unchecked:
		args = append(args, "-o", "/dev/null")
	}
	return append(args, url)
}

// curlTimedOut is the exit code of curl after --max-time.
const curlTimedOut = 28

// curlMaxTime returns the value of --max-time. An upload of fixed length runs longer than the sink
// counts.
func (t Transfer) curlMaxTime() string {
	switch {
	case t.Length == 0:
		return "3600" // the context ends it earlier
	case t.Upload:
		return fmt.Sprintf("%.3f", (t.Length + uploadExtra).Seconds())
	}
	return fmt.Sprintf("%.3f", t.Length.Seconds())
}

// uploadExtra is how much longer than Length curl sends an upload.
const uploadExtra = 2 * time.Second

// hashPrefix returns the SHA-256 of the first n bytes of the file of a size.
func (b *Bench) hashPrefix(size unit.Bytes, n int64) ([]byte, error) {
	hash := sha256.New()
	path, _, err := b.MakeFile(size)
	if err == nil {
		err = copyFilePrefix(hash, path, n)
	}
	return hash.Sum(nil), err
}

// clientReport is the timing that a client reports, in seconds.
type clientReport struct {
	total, first float64
	code         int
	bytes        unit.Bytes
}

// parseCurlReport parses a line of curlFormat.
func parseCurlReport(stderr string) (r clientReport, err error) {
	i := strings.LastIndex(stderr, "curl-report ")
	if i < 0 {
		return r, fmt.Errorf("curl: %s", strings.TrimSpace(stderr))
	}
	if _, err := fmt.Sscanf(stderr[i:], "curl-report %g %g %d %d", &r.total, &r.first, &r.code, &r.bytes); err != nil {
		return r, fmt.Errorf("curl's report: %w", err)
	}
	return r, nil
}

// lastNonEmptyLine returns the last line that is not empty.
func lastNonEmptyLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// outputTail keeps the end of a program's output.
type outputTail struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (t *outputTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if n := t.buf.Len(); n > 8192 {
		t.buf.Next(n - 4096)
	}
	return len(p), nil
}

func (t *outputTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.buf.String())
}
