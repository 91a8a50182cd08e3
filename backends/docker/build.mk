# The guests' seccomp profile: built in as one C string, and derived anew on demand. docs/seccomp.md.
$(GEN)/seccomp-builtin.h: backends/docker/seccomp.json
	@mkdir -p $(dir $@)
	@{ echo 'static const char SECCOMP_BUILTIN[] ='; sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $<; echo ';'; } > $@

$(OBJ)/backends/docker/seccomp.o: $(GEN)/seccomp-builtin.h

# `make seccomp TRACE=1` runs the workloads again under strace (as root, after `make images`); TRACE="python shell" these only.
.PHONY: seccomp
seccomp: ## derive the guests' seccomp profile from its traces and lists; TRACE=1 traces anew
	@backends/docker/seccomp/derive $(if $(TRACE),--trace $(filter-out 1,$(TRACE)))
