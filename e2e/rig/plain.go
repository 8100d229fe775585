// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// servePlain is a web server without lengths: a client can tell a whole answer from a part only by
// how TCP ends. It answers
//
//	GET /N HTTP/1.x        N bytes of noise without a length, at 1 MB/s if "?paced" follows N
//	PUT /NAME HTTP/1.x     nothing, and prints "begin NAME", then how the upload ends: "upload NAME: end"
//	                       or "upload NAME: reset"
//	put N                  and N bytes and a half-close: Sum of the bytes
//
// and prints SHORT for each upload by put that ends with FIN before its N bytes.
func servePlain(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			answerPlainly(c)
		}()
	}
}

// answerPlainly answers one request of servePlain.
func answerPlainly(c net.Conn) {
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil { // a check whether the port is open
		return
	}
	var n int64
	var name string
	if _, err := fmt.Sscanf(line, "put %d\n", &n); err == nil {
		got, err := Sum(r)
		if want, _ := Sum(Noise(n)); err == nil && got != want {
			fmt.Printf("SHORT or wrong upload that ended in order: got %s of %d bytes\n", got, n)
		} else if err == nil {
			_, _ = io.WriteString(c, got)
		}
	} else if _, err := fmt.Sscanf(line, "PUT /%s HTTP/", &name); err == nil {
		fmt.Printf("begin %s\n", name)
		how := "end"
		if _, err := io.Copy(io.Discard, r); errors.Is(err, syscall.ECONNRESET) {
			how = "reset"
		} else if err != nil {
			how = err.Error()
		}
		fmt.Printf("upload %s: %s\n", name, how)
	} else if _, err := fmt.Sscanf(line, "GET /%d", &n); err == nil {
		paced := strings.Contains(line, "?paced")
		for strings.TrimSpace(line) != "" {
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		_, err := io.WriteString(c, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
		noise := Noise(n)
		for err == nil && paced {
			_, err = io.CopyN(c, noise, 1000)
			time.Sleep(time.Millisecond)
		}
		if err == nil {
			_, _ = io.Copy(c, noise)
		}
	}
}

// relayPlainly forwards connections at addr to another server. It takes no care to reset them when
// it is killed.
func relayPlainly(addr, to string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(far, near); far.Close() }()
		go func() { _, _ = io.Copy(near, far); near.Close() }()
	}
}
