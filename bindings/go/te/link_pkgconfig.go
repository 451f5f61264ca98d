// SPDX-License-Identifier: Apache-2.0

//go:build !te_flags

package te

// #cgo pkg-config: transfer_engine
import "C"
