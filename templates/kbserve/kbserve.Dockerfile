# kbserve's image: the program and the web's certificates, no shell.
#
# The build context holds this file and kbserve, and nothing else: no token, no
# password.
#
#   kbserve unit --dockerfile >Dockerfile && cp /usr/bin/kbserve .
#   docker build --tag kbserve:latest .
#
# BASE is any image that has certificates: kbserve is one static file.
ARG BASE=gcr.io/distroless/static-debian12:nonroot
FROM ${BASE}

COPY kbserve /usr/bin/kbserve
USER 65532:65532
ENTRYPOINT ["/usr/bin/kbserve"]
CMD ["serve"]
