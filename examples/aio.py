# SPDX-License-Identifier: Apache-2.0
"""Coroutines of an asyncio program read pages at the same time; some reads are canceled, and one is refused.

Both engines are in this process. The loop is woken by the engine's descriptor, and no thread waits.
"""
import asyncio
import sys

import transfer_engine as te

PAGE, PAGES = 64 << 10, 64
LOOPBACK = {"TE_BIND": "127.0.0.1"}  # the address that they listen on, and no other


async def read_with_limit(segment, pages, remotes):
    """A batch that takes too long is canceled. When the wait for it ends, its memory is quiet, whatever the outcome."""
    with segment.start_read(pages * 16, remotes * 16) as batch:
        try:
            await asyncio.wait_for(batch, 0.001)
            return "it was quicker"
        except asyncio.TimeoutError:
            return "it was canceled"


async def read_beyond(segment, memory, remote):
    try:
        await segment.read_async(memory, remote, timeout=60)
    except te.RequestError as error:  # the same again would fail again
        return error.name
    return "was not refused"


async def work(ours, segment, remote):
    pages = [ours[i * PAGE : (i + 1) * PAGE] for i in range(PAGES)]
    remotes = [remote + i * PAGE for i in range(PAGES)]
    fetched = await asyncio.gather(*[segment.read_async(*pair, timeout=60) for pair in zip(pages, remotes)])
    wrong = sum(bytes(page) != bytes([i]) * PAGE for i, page in enumerate(pages))
    refused = await read_beyond(segment, pages[0], remote + PAGES * PAGE)
    limited = await read_with_limit(segment, pages, remotes)
    print(
        f"{sum(fetched)} bytes in {PAGES} pages, {wrong} of them wrong; "
        f"beyond the end: {refused}; 1 ms for all: {limited}"
    )
    return 1 if wrong or refused != "TE_ERR_STALE" else 0


async def main():
    with te.Engine(options=LOOPBACK) as here, te.Engine(options=LOOPBACK) as there:
        theirs = bytearray(b"".join(bytes([i]) * PAGE for i in range(PAGES)))
        ours = memoryview(bytearray(len(theirs)))
        remote = there.register(theirs, access=te.Access.READ).address
        here.register(ours)
        with here.open(there.name) as segment:
            return await work(ours, segment, remote)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
