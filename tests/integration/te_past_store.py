# SPDX-License-Identifier: Apache-2.0
"""A metadata server that answers as one did while engines of a released version were recorded."""
import base64
import json
import re
import socket
import threading
import urllib.parse

import te_past_play as play
import te_stores


class Http:
    """A request is (operation, key, value); answers are those that were recorded, with other values."""
    scheme = "http"
    path = "/metadata"

    @staticmethod
    def read(stream):
        return play.read_http(stream)

    @staticmethod
    def parse(data):
        head, _, body = data.partition(b"\r\n\r\n")
        method, where, _ = head.split(b"\r\n")[0].decode().split(" ")
        key = urllib.parse.parse_qs(urllib.parse.urlsplit(where).query)["key"][0]
        return method, key, body or None

    @staticmethod
    def reads(operation):
        return operation == "GET"

    @staticmethod
    def found(answer):
        return answer.startswith(b"HTTP/1.1 200 ")

    @staticmethod
    def with_value(answer, value):
        head = answer.partition(b"\r\n\r\n")[0]
        return re.sub(rb"(Content-Length: )\d+", rb"\g<1>%d" % len(value), head) + b"\r\n\r\n" + value


class Etcd(Http):
    scheme = "etcd"
    path = ""

    @staticmethod
    def parse(data):
        head, _, body = data.partition(b"\r\n\r\n")
        told = json.loads(body)
        key, value = (base64.b64decode(told.get(name, "")) for name in ("key", "value"))
        return head.split(b" ")[1].decode(), key.decode(), value or None

    @staticmethod
    def reads(operation):
        return operation == "/v3/kv/range"

    @staticmethod
    def found(answer):
        return b'"kvs"' in answer

    @staticmethod
    def with_value(answer, value):
        told = json.loads(answer.partition(b"\r\n\r\n")[2])
        told["kvs"][0]["value"] = base64.b64encode(value).decode()
        return Http.with_value(answer, json.dumps(told, separators=(",", ":")).encode())


class Redis:
    scheme = "redis"
    path = ""

    @staticmethod
    def read(stream):
        """The request as it is, put together again from its words."""
        words = te_stores.read_reply(stream)
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)

    @staticmethod
    def parse(data):
        words = data.split(b"\r\n")[2::2]
        return words[0].decode(), words[1].decode(), words[2] if len(words) > 2 else None

    @staticmethod
    def reads(operation):
        return operation == "GET"

    @staticmethod
    def found(answer):
        return answer != b"$-1\r\n"

    @staticmethod
    def with_value(answer, value):  # pylint: disable=unused-argument
        return b"$%d\r\n%s\r\n" % (len(value), value)


class RecordedStore:
    """Serves on 127.0.0.1, .url says where; .values are {key: value}. A request of a kind that was not recorded
    ends the connection."""

    def __init__(self, form, messages):
        self.form, self.values, self.answers = form, {}, {}
        asked = None
        for way, data in messages:
            if way == ">":
                asked = form.parse(data)
                continue
            operation = asked[0]
            self.answers[operation, form.reads(operation) and form.found(data)] = data
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{form.scheme}://127.0.0.1:{self.listener.getsockname()[1]}{form.path}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with sock, sock.makefile("rb") as stream:
            try:
                while True:
                    sock.sendall(self.answer(*self.form.parse(self.form.read(stream))))
            except (OSError, EOFError, KeyError):
                pass

    def answer(self, operation, key, value):
        if self.form.reads(operation):
            if key in self.values:
                return self.form.with_value(self.answers[operation, True], self.values[key])
            return self.answers[operation, False]
        answer = self.answers[operation, False]
        if value is not None:
            self.values[key] = value
        elif key:
            self.values.pop(key, None)
        return answer

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


FORMS = {"store_http": Http, "store_etcd": Etcd, "store_redis": Redis}


def stored(form, messages, ending):
    """The last values that were put under keys with that ending."""
    puts = (form.parse(data) for way, data in messages if way == ">")
    return {key: value for _, key, value in puts if value is not None and key.endswith(ending)}
