// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// clientRun is the client of one transfer.
type clientRun struct {
	cmd      *exec.Cmd
	out      io.Reader
	stderr   bytes.Buffer
	received Received // what arrived, if its output is the data
	report   []byte   // output of a client with its own report
	// input is set if the client was started beforehand: a line of it makes the client begin, and its
	// end makes it end.
	input io.WriteCloser
}

// newClientRun prepares the client of a command of Lab.Command.
func newClientRun(cmd *exec.Cmd, err error) (*clientRun, error) {
	if err != nil {
		return nil, err
	}
	c := &clientRun{cmd: cmd}
	cmd.Stderr, cmd.WaitDelay = &c.stderr, stopTimeout
	c.out, err = cmd.StdoutPipe()
	return c, err
}

// startBeforehand starts the client and waits until it is ready.
func (c *clientRun) startBeforehand() (err error) {
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	ready := make([]byte, len(readyLine))
	if _, err := io.ReadFull(c.out, ready); err != nil || string(ready) != readyLine {
		_ = c.input.Close()
		return fmt.Errorf("the client is not ready: %w", cmp.Or(c.waitClientExit(), err))
	}
	return nil
}

// beginTransfer makes the client begin.
func (c *clientRun) beginTransfer() error {
	if c.input == nil {
		return c.cmd.Start()
	}
	_, err := io.WriteString(c.input, "begin\n")
	return err
}

// endInput makes a client that was started beforehand end, and waits for that.
func (c *clientRun) endInput() {
	if c.input != nil && c.cmd.Process != nil && c.cmd.ProcessState == nil {
		_ = c.input.Close()
		_ = c.waitClientExit() // what it reported counts
	}
}

// cpuTime returns the processor time that the client took, 0 while it runs.
func (c *clientRun) cpuTime() time.Duration {
	if p := c.cmd.ProcessState; p != nil {
		return p.UserTime() + p.SystemTime()
	}
	return 0
}

// waitClientExit waits for the client's exit. The error includes what it printed.
func (c *clientRun) waitClientExit() error {
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(c.stderr.String()))
	}
	return nil
}

// readOutput reads the client's output: the bytes of a download, the sink's view of an upload, or
// the report of a client that writes one.
func (c *clientRun) readOutput(t Transfer, hasReport bool, m *byteCounter) (err error) {
	switch {
	case c.input != nil: // it stays until its input ends
		c.report, err = bufio.NewReader(c.out).ReadBytes('\n')
	case t.Video != nil || t.App != nil || hasReport:
		c.report, err = io.ReadAll(c.out)
	case !t.Upload && t.Streams == 1:
		c.received, err = receiveAll(c.out, m, 0)
	case t.Length > 0 || len(t.Items) > 0: // the sink reports later, or the web server has the files
		_, _ = io.Copy(io.Discard, c.out)
	default:
		err = json.NewDecoder(c.out).Decode(&c.received)
		_, _ = io.Copy(io.Discard, c.out)
	}
	return err
}
