"""Is a build right? What the cases should give, the steps that a worker takes of them, and what is concluded."""
