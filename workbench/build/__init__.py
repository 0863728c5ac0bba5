"""From text to a shared object: keys and the store, the C++ compiler, and the generated code around the user's."""
