// SPDX-License-Identifier: Apache-2.0

//go:build router

package upload

import "net/http"

// hasS3 reports whether this build supports S3. Target.Check refuses S3.
const hasS3 = false

// newS3Signer returns nil: there is no S3.
func newS3Signer(Target) func(*http.Request, string) error { return nil }
