# Makes wasm2c's single C file compilable in parts, so that a build uses every core: `cc -DENGINE_PART=k` takes the k-th share of the
# functions, part 0 also the data and the module's own start. What the parts call of each other loses its `static`; the names are
# hidden, so calls stay direct. `parts` is given with -v. Knows wabt 1.0.32's layout: declarations, data, functions, exports, and
# stops the build when it does not find it.

function unstatic(line)
{
    sub(/^static /, "", line)
    return line
}

NR == FNR {
    lines++
    next
}

/^static u32 func_types\[/ {
    seen_types = 1
    print "#pragma GCC visibility push(hidden)"
    decl = unstatic($0)
    sub(/;$/, "", decl)
    print "#if ENGINE_PART == 0\n" decl ";\n#else\nextern " decl ";\n#endif"
    next
}

# The prototypes follow the function types; what comes between and after belongs to part 0 alone.
!functions && /^static void init_func_types\(void\) \{$/ {
    print "#if ENGINE_PART == 0"
    guarded = 1
}

!functions && /^static [a-z0-9]+ w2c_[A-Za-z0-9_]+\(.*\);$/ {
    if (guarded) {
        print "#endif"
        guarded = 0
    }
    print unstatic($0)
    prototypes++
    next
}

!functions && /^static void init_globals\(/ {
    print "#if ENGINE_PART == 0"
    guarded = 1
}

# A long list of parameters goes on in the next line.
/^static [a-z0-9]+ w2c_[A-Za-z0-9_]+\([^;]*$/ {
    if (!functions) {
        print "#endif"
        guarded = 0
        part = 0
        first = FNR
        share = (lines - first) / parts
        print "#if ENGINE_PART == 0"
    } else if (part + 1 < parts && FNR - first > (part + 1) * share) {
        part++
        print "#endif\n#if ENGINE_PART == " part
    }
    functions++
    print unstatic($0)
    next
}

functions && !exports && /^\/\* export: / {
    exports = 1
    print "#endif\n#pragma GCC visibility pop\n#if ENGINE_PART == 0"
}

{
    print
}

END {
    if (!seen_types || !prototypes || prototypes != functions || !exports) {
        print "split.awk: this is not the layout it knows" > "/dev/stderr"
        exit 1
    }
    print "#endif"
}
