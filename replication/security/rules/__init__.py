"""Who is there, and how they prove it: rules, without a socket, a clock or chance.

    principal.py    what somebody is called: `User:alice`
    scram.py        SCRAM (RFC 5802, 7677), both sides
    sasl.py         logging in, both sides: which mechanism, and its tokens
    acls.py         who may do what

Rule 1: a proof that fails says to its peer that it failed, and not which part of it did.

Rule 2: nonces and salts are handed in. What is compared with a secret is compared in
constant time.
"""
