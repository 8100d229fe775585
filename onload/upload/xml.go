// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"crypto/md5" // for ETags of S3 only
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/onload/transfer"
)

// errorXML is an error of S3.
type errorXML struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}

// refusalFromXML returns the Refusal for a response other than success, with the error of S3.
func refusalFromXML(r *response) *transfer.Refusal {
	refusal := refusalOfUpload(r.Response, time.Now())
	var x struct {
		XMLName xml.Name `xml:"Error"`
		errorXML
	}
	if xml.Unmarshal(r.body, &x) != nil || x.Code == "" {
		return refusal
	}
	hint := fault.HintOf(refusal.Err)
	switch x.Code {
	case "SlowDown", "ConditionalRequestConflict", "RequestTimeout", "InternalError", "ServiceUnavailable":
		refusal.Verdict = transfer.Retry
	case "XAmzContentSHA256Mismatch", "BadDigest":
		refusal.Verdict = transfer.Restart // the file changed meanwhile
	case "NoSuchUpload":
		refusal.Verdict = transfer.Restart
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		hint = "check the region and endpoint of the bucket"
	case "SignatureDoesNotMatch", "InvalidAccessKeyId":
		hint = "check the access key and secret"
	case "RequestTimeTooSkewed":
		hint = "check the clock of this device"
	case "NoSuchBucket":
		hint = "check the bucket: the URL is https://host/bucket/name/, or https://bucket.host/name/"
	case "PreconditionFailed":
		return &transfer.Refusal{Verdict: transfer.Final,
			Err: fault.New(fault.Exists, errors.New("the server already has an object of that name"), hint)}
	}
	if r.StatusCode == http.StatusForbidden {
		refusal.Verdict = transfer.Final
	}
	refusal.Err = fault.New(fault.KindOf(refusal.Err), fmt.Errorf("%w: %s: %s", refusal.Err, text.Printable(x.Code),
		text.Printable(x.Message)), hint)
	return refusal
}

// multipartETag returns the ETag of an object in parts: the digest of their digests, and their
// number. It returns "" if an ETag is not a digest.
func multipartETag(parts map[int]part) string {
	sum := md5.New()
	for _, n := range slices.Sorted(maps.Keys(parts)) {
		b, err := hex.DecodeString(trimQuotes(parts[n].ETag))
		if err != nil {
			return ""
		}
		sum.Write(b)
	}
	return fmt.Sprintf("%x-%d", sum.Sum(nil), len(parts))
}
