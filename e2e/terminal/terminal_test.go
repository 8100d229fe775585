// SPDX-License-Identifier: Apache-2.0

//go:build linux

package terminal

import (
	"encoding/xml"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestScreen checks what sequences leave on the screen. Output that is cut at any byte must give the
// same.
func TestScreen(t *testing.T) {
	for _, c := range []struct {
		name, output string
		want         []string
	}{
		{"lines", "one\r\ntwo", []string{"one", "two"}},
		{"wrap", "0123456789abc", []string{"0123456789", "abc"}},
		{"full line", "0123456789\r\nabc", []string{"0123456789", "abc"}},
		{"scroll", "a\r\nb\r\nc\r\nd\r\ne", []string{"b", "c", "d", "e"}},
		{"rewrite", "ab\r\ncd\r\n\x1b[2A\x1b[Kef\r\n", []string{"ef", "cd"}},
		{"position", "\x1b[2;3Hx\x1b[1;1Hy\x1b[3Gz", []string{"y z", "  x"}},
		{"erase", "abc\r\ndef\x1b[1;2H\x1b[J", []string{"a"}},
		{"erase line", "abcdef\x1b[3D\x1b[1K", []string{"    ef"}},
		{"other screen", "shell\r\n\x1b[?1049hview\x1b[?1049l$", []string{"shell", "$"}},
		{"title", "\x1b]0;a title\x07x\x1b]0;b\x1b\\y", []string{"xy"}},
		{"wide", "日本x", []string{"日本x"}},
		{"tab", "a\tb", []string{"a       b"}},
		{"delete", "abcd\x1b[1G\x1b[2P", []string{"cd"}},
		{"unknown", "\x1b[>4;1ma\x1b(Bb\x1b=c", []string{"abc"}},
	} {
		for at := range len(c.output) + 1 {
			s := NewScreen(10, 4)
			s.Write([]byte(c.output[:at]))
			s.Write([]byte(c.output[at:]))
			if got := s.Lines(); !slices.Equal(got, c.want) {
				t.Errorf("%s, cut at %d: %q, want %q", c.name, at, got, c.want)
			}
		}
	}
}

// TestStyles checks the styles of cells.
func TestStyles(t *testing.T) {
	s := NewScreen(20, 1)
	s.Write([]byte("\x1b[1;31ma\x1b[22mb\x1b[38;5;208;7mc\x1b[0md\x1b[48;2;1;2;3me\x1b[m\x1b[92;2mf"))
	for x, want := range []Style{
		{Text: 1, Back: DefaultColor, Bold: true},
		{Text: 1, Back: DefaultColor},
		{Text: 208, Back: DefaultColor, Reverse: true},
		plainStyle,
		{Text: DefaultColor, Back: trueColor | 0x010203},
		{Text: 10, Back: DefaultColor, Dim: true},
	} {
		if got := s.cells[0][x].Style; got != want {
			t.Errorf("%c: %+v, want %+v", s.cells[0][x].Rune, got, want)
		}
	}
}

// TestSVG checks that a picture is well-formed and has the text of the screen: each part of a line
// at its column, and block characters as shapes.
func TestSVG(t *testing.T) {
	s := NewScreen(40, 5)
	s.Prompt("$ ", "run <x> & y")
	s.Write([]byte("NAME   RATE\r\n\x1b[31mphone\x1b[0m  8 Mbit/s  ▁▄██\r\n\x1b[7mq: quit\x1b[0m"))
	svg := string(s.SVG("a & b"))
	d := xml.NewDecoder(strings.NewReader(svg))
	var texts []string
	for depth := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err, svg)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local == "text" {
				texts = append(texts, "")
				depth++
			}
		case xml.EndElement:
			if e.Name.Local == "text" {
				depth--
			}
		case xml.CharData:
			if depth > 0 {
				texts[len(texts)-1] += string(e)
			}
		}
	}
	want := []string{"a & b", "$ run <x> & y", "NAME", "RATE", "phone", "8 Mbit/s", "q: quit"}
	if !slices.Equal(texts, want) {
		t.Errorf("texts %q, want %q", texts, want)
	}
	for _, part := range []string{`<rect class="back"`, `class="c1">phone`, `class="block"`, `class="back">q: quit`} {
		if !strings.Contains(svg, part) {
			t.Errorf("no %s in\n%s", part, svg)
		}
	}
}

// TestTerminal checks that a program finds a terminal of the right size, and gets what is typed.
func TestTerminal(t *testing.T) {
	term, err := Start(exec.Command("sh", "-c", "stty size; test -t 0 && test -t 2 && echo yes $TERM; read x; "+
		"echo got $x"), NewScreen(70, 9))
	if err != nil {
		t.Skipf("no terminals can be made here: %v", err)
	}
	if err := term.Type("this\n"); err != nil {
		t.Fatal(err)
	}
	if err := term.Wait(); err != nil {
		t.Fatal(err)
	}
	got := term.Screen().Text()
	for _, want := range []string{"9 70", "yes " + termName, "got this"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}
