# SPDX-License-Identifier: Apache-2.0
"""Certificates, and engines with TE_AUTH=mtls, for the tests of it."""
import os
import shutil
import ssl
import subprocess
import tempfile

import te_auth
import te_proc as te

OPENSSL_CONF = """
[ca]
default_ca = authority
[authority]
database = {folder}/index.txt
default_md = sha256
default_crl_days = {days}
"""

TICKET = 104


def connect(server):
    """To the handshake port of an engine whose segment has its name."""
    return te.connect(te.split_address(server.segment))


def name(welcome):
    """That of the ticket in a server's first bytes."""
    return welcome[8:8 + welcome[4]].decode()


def ticket(sock):
    """The same, read from a connection."""
    return name(te.read_exactly(sock, TICKET))


class Case(te_auth.Case):
    """An authority, and engines with certificates of it."""

    def setUp(self):
        super().setUp()
        self.make("ca")
        open(self.at("index.txt"), "w", encoding="ascii").close()

    def at(self, name):
        return os.path.join(self.folder, name)

    def make(self, *words, folder=None):
        subprocess.run([te.tool("te_keys"), *words, "--dir", folder or self.folder], check=True,
                       capture_output=True, timeout=te.HANG_S)

    def certificate(self, name, folder=None):
        """The options of an engine with a certificate of that name, and other ones."""
        folder = folder or self.folder
        first = name.split(",")[0]
        if not os.path.exists(os.path.join(folder, f"{first}.pem")):
            self.make("cert", name, folder=folder)
        return (f"TE_AUTH_CERT={folder}/{first}.pem", f"TE_AUTH_KEY={folder}/{first}.key")

    def member(self, whose, *options, ca="ca.pem", certificate=None, **more):
        """An engine that shows a certificate of that name."""
        return self.engine("TE_AUTH=mtls", f"TE_AUTH_CA={self.at(ca)}", *(certificate or self.certificate(whose)),
                           *options, **more)

    def context(self, whose):
        """TLS as an engine's with the certificate of that name speaks it."""
        cert, key = (option.split("=")[1] for option in self.certificate(whose))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.at("ca.pem"))
        context.load_cert_chain(cert, key)
        context.set_alpn_protocols(["te-mtls/1"])
        return context

    def talk(self, server, whose):
        """A connection to an engine's handshake port, past the handshake."""
        return self.context(whose).wrap_socket(connect(server), server_hostname="127.0.0.1")

    def revoke(self, *names, days=30):
        """Writes ca.crl, with those names in it."""
        if not shutil.which("openssl"):
            te.skip("there is no openssl command")
        with open(self.at("openssl.cnf"), "w", encoding="ascii") as f:
            f.write(OPENSSL_CONF.format(folder=self.folder, days=days))
        common = ["openssl", "ca", "-config", self.at("openssl.cnf"), "-keyfile", self.at("ca.key"),
                  "-cert", self.at("ca.pem")]
        for name in names:
            subprocess.run([*common, "-revoke", self.at(f"{name}.pem")], check=True, capture_output=True,
                           timeout=te.HANG_S)
        made = self.at("ca.crl.new")
        subprocess.run([*common, "-gencrl", "-out", made], check=True, capture_output=True, timeout=te.HANG_S)
        os.rename(made, self.at("ca.crl"))
        return self.at("ca.crl")

    def unrevoke(self):
        """Writes ca.crl, with nobody in it."""
        open(self.at("index.txt"), "w", encoding="ascii").close()
        return self.revoke()

    def other_authority(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        self.make("ca", folder=folder)
        return self.certificate("127.0.0.1", folder)

    def list_of_another_authority(self):
        """A list of revoked certificates of an authority of the same name."""
        folder = self.folder
        self.folder = tempfile.mkdtemp(dir=folder)
        self.make("ca")
        open(self.at("index.txt"), "w", encoding="ascii").close()
        path = self.revoke()
        self.folder = folder
        return path

    def expire(self, name):
        """Makes a certificate of that name, and waits for its end."""
        if not shutil.which("openssl"):
            te.skip("there is no openssl command")
        key, request, made = (self.at(f"{name}.{end}") for end in ("key", "csr", "pem"))
        ca = ("-CA", self.at("ca.pem"), "-CAkey", self.at("ca.key"), "-CAcreateserial")
        for words in (("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                       "-subj", f"/CN={name}", "-out", request),
                      ("x509", "-req", "-in", request, *ca, "-days", "0", "-out", made)):
            subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=te.HANG_S)
        os.chmod(key, 0o600)
        te.until(lambda: subprocess.run(["openssl", "verify", "-CAfile", self.at("ca.pem"), made], check=False,
                                        capture_output=True, timeout=te.HANG_S).returncode, "its end")
