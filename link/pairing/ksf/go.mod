// SPDX-License-Identifier: Apache-2.0

module github.com/bytemare/ksf

go 1.26.0
