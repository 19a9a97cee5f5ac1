"""Secure aggregation: a server adds up vectors of 64-bit integers and learns nothing but their sum.

Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", figure 4, with double
masking and against a server that may lie. Nothing here knows about learning, noise or networks.

    field     arithmetic in GF(2^16), on whole arrays
    shamir    secrets cut into shares of which a threshold restores them
    masks     X25519 keys, HKDF, ChaCha20 masks modulo 2^64, sealed letters
    roster    what all members agree on beforehand, and the messages
    member    the part of a member
    collector the part of the server
"""
