# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# lab: nics=4 timeout=200
#
# What every one-sided transport must do, over one and over two NICs on each side.
test_rdma=$TE_TEST_BUILD/tests/transport/test_rdma
[ -x "$test_rdma" ] || { echo "$test_rdma is not built"; exit 77; }
for nics in rxe0,rxe1 rxe0,rxe1,rxe2,rxe3; do
    TE_TEST_RDMA_NICS=$nics "$test_rdma" >"/tmp/conformance.$nics" 2>&1 || {
        grep -v '\[  *OK *\]' "/tmp/conformance.$nics"
        echo "over $nics"
        exit 1
    }
    echo "over $nics: $(grep PASSED "/tmp/conformance.$nics")"
done
