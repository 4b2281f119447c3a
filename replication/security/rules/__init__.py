"""Authentication and authorization, as rules without a socket, a clock or chance.

    principal.py    the name of a user: `User:alice`
    scram.py        SCRAM (RFC 5802, 7677), both sides
    sasl.py         the login, both sides: the mechanism and its tokens
    acls.py         the operations that a user may do

Rule 1: a failed login tells the peer that it failed, but not which part was wrong.

Rule 2: nonces and salts are arguments. A comparison with a secret takes constant time.
"""
