/* SPDX-License-Identifier: Apache-2.0 */
/* auth_causes.h - why a peer is refused; part of auth.h. Their order is that of the numbers in docs/protocol.md. */
#ifndef TEI_AUTH_CAUSES_H
#define TEI_AUTH_CAUSES_H

/* AUTH_CAUSE(name, label of the metric, what the peer has done, remedy). */
#define TEI_AUTH_CAUSES(AUTH_CAUSE)                                                                \
    AUTH_CAUSE(PLAIN, "plain", "it proves nothing",                                                \
               "set TE_AUTH there as it is here, or have its address in TE_AUTH_CLASSIC here")     \
    AUTH_CAUSE(ID, "id", "its id is not in the key file here",                                     \
               "add its line to the file of TE_AUTH_KEYS here")                                    \
    AUTH_CAUSE(OWN, "own", "it shows the id of this engine, or is this engine itself",             \
               "give each side an id of its own, or repeat the first line of the key file for a "  \
               "group that shares one")                                                            \
    AUTH_CAUSE(KEY, "key", "its key is another one than that of its id here",                      \
               "give the id the same key in both files of TE_AUTH_KEYS")                           \
    AUTH_CAUSE(MALFORMED, "malformed", "what it sends is no proof",                                \
               "look for a program of another kind that connects here")                            \
    AUTH_CAUSE(LATE, "late", "it has not proved itself in 1 s",                                    \
               "look for a host that is overloaded")                                               \
    AUTH_CAUSE(KIND, "kind", "it proves itself in another way",                                    \
               "set TE_AUTH to the same at both ends")                                             \
    AUTH_CAUSE(UNTRUSTED, "untrusted", "no authority of TE_AUTH_CA here has signed what it shows", \
               "have one sign its certificate, or add its authority to TE_AUTH_CA here")           \
    AUTH_CAUSE(EXPIRED, "expired", "its certificate is not valid today",                           \
               "give it another one in TE_AUTH_CERT, or set the clock of one of the hosts")        \
    AUTH_CAUSE(REVOKED, "revoked", "its certificate is in the list of TE_AUTH_CRL here",           \
               "give it another certificate, if it may come")                                      \
    AUTH_CAUSE(NO_CRL, "no_crl",                                                                   \
               "the list of TE_AUTH_CRL here is not of its authority, or not of today",            \
               "give TE_AUTH_CRL here the list that its authority issues now")                     \
    AUTH_CAUSE(TICKET, "ticket", "its ticket is outdated, as by files here that were read anew",   \
               "none is needed: it asks for another one")                                          \
    AUTH_CAUSE(DENIED, "denied", "what it asks for is for others alone",                           \
               "its id, or a name of its certificate, must be in the memory's or lease's list")

#endif
