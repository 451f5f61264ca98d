#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""Proxies of the environment: honoured for http and etcd, passed by where no_proxy says so."""
import http.client
import http.server
import threading
import unittest
import urllib.parse

import te_proc as te
import te_stores as stores


class Proxy:
    """Passes requests on, and each answer once it has ended; .seen counts them."""

    def __init__(self):
        proxy = self
        self.seen = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                proxy.seen += 1
                url = urllib.parse.urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {k: v for k, v in self.headers.items() if not k.lower().startswith("proxy-")}
                upstream = http.client.HTTPConnection(url.hostname, url.port, timeout=te.HANG_S)
                try:
                    upstream.request(self.command, url._replace(scheme="", netloc="").geturl(), body, headers)
                    reply = upstream.getresponse()
                    answer = reply.read()
                    self.send_response(reply.status)
                    for name, value in reply.getheaders():
                        if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                            self.send_header(name, value)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                finally:
                    upstream.close()

            do_GET = do_PUT = do_POST = do_DELETE = forward

            def log_message(self, *unused):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def environment(proxy, no_proxy=""):
    return {"http_proxy": proxy, "https_proxy": proxy, "all_proxy": "", "ALL_PROXY": "", "HTTPS_PROXY": "",
            "no_proxy": no_proxy, "NO_PROXY": no_proxy, "TE_METADATA_TIMEOUT_MS": "60000"}


@stores.per_store(stores.Etcd, stores.Metad)
class ThroughAProxy(stores.StoreCase):
    def info(self, **variables):
        return te.run("te_info", f"--metadata_server={self.store.url}", env=variables)

    def test_one_that_is_not_there(self):
        dead = f"http://127.0.0.1:{te.dead_port()}"
        proc = self.info(**environment(dead))
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("no_proxy passes it by", proc.output())
        for no_proxy in ("127.0.0.1", "*", "example.com,127.0.0.1"):
            proc = self.info(**environment(dead, no_proxy))
            self.assertEqual(proc.rc, 0, proc)

    def test_one_that_passes_on(self):
        proxy = Proxy()
        self.addCleanup(proxy.close)
        env = environment(proxy.url)
        with te.Peer(name="node-a", metadata=self.store.url, env=env) as one, \
                te.Peer(name="node-b", metadata=self.store.url, env=env) as two:
            index, _ = two.region(1 << 20)
            _, remote = one.region(1 << 20)
            segment = two.open("node-a")
            two.round_trip(segment, index, 1 << 19, remote, 1)
            self.assertGreater(proxy.seen, 4)
            # An answer that is held back until it ends is no stream; etcd is polled then.
            if self.store.scheme == "etcd":
                one.region(4096)
                te.until(lambda: two.ask("buffers", segment)[0] == "2", "the second buffer")
            self.assertEqual((two.quit(), one.quit()), (0, 0))


if __name__ == "__main__":
    te.main()
