// SPDX-License-Identifier: Apache-2.0

//go:build linux && router

package tun

const unsupportedWhere = "in the build for routers: the one without the build tag router can"
