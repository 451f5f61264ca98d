// SPDX-License-Identifier: Apache-2.0

//go:build te_flags

package te

// #cgo LDFLAGS: -ltransfer_engine
import "C"
