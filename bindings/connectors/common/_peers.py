# SPDX-License-Identifier: Apache-2.0
"""Which engines may be peers: those on the hosts that the option `peers` lists."""

import ipaddress
from typing import Any, List, Set, Union

from . import _protocol

_Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


class Peers:
    """Hosts, addresses and networks, such as ["decode-1", "10.0.0.7", "10.1.0.0/16"]. None: any."""

    def __init__(self, listed: Any = None) -> None:
        self._any = listed is None
        self._hosts: Set[str] = set()
        self._networks: List[_Network] = []
        if not self._any and (not isinstance(listed, list) or not listed):
            raise ValueError(f"{listed!r} is not a list of hosts, addresses and networks")
        for entry in listed or ():
            self._add(_protocol.word(entry))

    def _add(self, entry: str) -> None:
        if "/" in entry:
            self._networks.append(ipaddress.ip_network(entry))
        else:
            self._hosts.add(_protocol.host(entry))

    def is_any(self) -> bool:
        return self._any

    def allow(self, name: str) -> bool:
        """Of a name that _protocol.engine() has taken. A network has addresses alone: no name of a host is looked up."""
        host = _protocol.split(name)[0]
        if self._any or host in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks if network.version == address.version)

    def address(self, value: Any) -> _protocol.Address:
        """As _protocol.address(), of a peer that is allowed."""
        found = _protocol.address(value)
        if not self.allow(found[0]):
            raise ValueError(f"{found[0]} is on none of the hosts that `peers` among the connector's options lists")
        return found
