// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestKindAndHintSurviveWrapping(t *testing.T) {
	inner := New(WrongKey, io.EOF, "check the key")
	outer := fmt.Errorf("server home: %w", New(Timeout, fmt.Errorf("handshake: %w", inner), ""))
	if KindOf(outer) != Timeout || !Is(outer, Timeout) {
		t.Errorf("kind %q, want the outermost, %q", KindOf(outer), Timeout)
	}
	if HintOf(outer) != "check the key" {
		t.Errorf("hint %q", HintOf(outer))
	}
	if !errors.Is(outer, io.EOF) || outer.Error() != "server home: handshake: EOF" {
		t.Errorf("error %v", outer)
	}
}

func TestPlainErrors(t *testing.T) {
	if KindOf(nil) != "" || HintOf(nil) != "" || Is(nil, Other) || New(Usage, nil, "x") != nil {
		t.Error("nil must stay nil and have neither kind nor hint")
	}
	if KindOf(io.EOF) != Other || HintOf(io.EOF) != "" {
		t.Error("a plain error is of kind Other and has no hint")
	}
}
