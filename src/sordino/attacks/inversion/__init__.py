"""Inversion: pictures from messages, and classes from models. One file per attack.

observed    a message and what is public about it; `message` has the client's own code make one
dlg ig gi   the attacks on messages; `attack` is what they share, `search` what ig and gi share, `descent` their optimisers
gradient    the gradient-matching step; `layers` and `chain` are its fast form, `native_chain` the same in C
adaptive    the step for an attacker that knows a heuristic defence
labels priors matching metrics    labels from the last layer, image priors, assignment, MSE, PSNR and SSIM
ked_mi gan classes    the attack on the model, its networks, and its line of a table
robustness  what a proof allows any reconstruction
progress    where an interrupted attack goes on
runs pictures    a run folder in, a table with pictures out
"""
