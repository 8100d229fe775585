// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"slices"
	"testing"
)

func TestCommands(t *testing.T) {
	const text = `Text with ` + "`mpbond status`" + `.

    mpbond get URL              # a comment
    unknown --flag \
        more

    key = "value"

- an item
    mpbond in the text of an item

1. An item:

       bin/mpbond-lab ls

        vps$ cat file && A=1 mpbond server
        its output
        laptop$  sudo true
        phone$ put '{"a": "it is",
          "b": 1}' x
        output

    mpbond get URL [flags]

` + "```\n$ mpbond usage\noutput\n```\n"
	want := []Command{{3, true, "", "mpbond get URL"}, {4, false, "", "unknown --flag more"},
		{14, true, "", "bin/mpbond-lab ls"}, {16, true, "vps", "cat file && A=1 mpbond server"},
		{18, false, "laptop", "sudo true"}, {19, false, "phone", `put '{"a": "it is", "b": 1}' x`},
		{26, true, "", "mpbond usage"}}
	if got := Commands(text); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
