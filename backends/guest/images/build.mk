# The guest images: built from Debian packages and imported into the Engine at SANDBOX_DOCKER_SOCKET. docs/guest-images.md.
# IMAGES="snippet project" builds only these.
.PHONY: images images-docker
images: setup ## build the guest images that are stale, into the Engine at SANDBOX_DOCKER_SOCKET
	@packages/install packages/images.txt
	$(if $(wildcard backends/guest/runner/build.mk),@$(SUB) build/guest/runner)
	@backends/guest/images/build $(IMAGES)

images-docker: setup ## the same images with docker build, from the Dockerfile
	$(if $(wildcard backends/guest/runner/build.mk),@$(SUB) build/guest/runner)
	@backends/guest/images/build --docker $(IMAGES)
