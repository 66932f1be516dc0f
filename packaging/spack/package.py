# SPDX-License-Identifier: Apache-2.0
# Spack recipe: copy it to packages/llamero/package.py of a Spack repository.
from spack.package import *


class Llamero(MakefilePackage, CudaPackage):
    """Pretrains Llama language models, from raw text to a Hugging Face checkpoint."""

    # PLACEHOLDER: whoever publishes this recipe sets address, maintainers and checksums.
    homepage = "https://placeholder.invalid/llamero"
    git = "https://placeholder.invalid/llamero.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Train on several ranks")
    variant("hub", default=True, description="Read hf:// and s3:// paths, with libcurl")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("onednn")
    depends_on("cjson")
    depends_on("pcre2")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("brotli")
    depends_on("snappy")
    depends_on("lz4")
    depends_on("libyaml")
    depends_on("mpi", when="+mpi")
    depends_on("curl", when="+hub")
    depends_on("cudnn", when="+cuda")
    depends_on("nccl", when="+cuda")

    conflicts("cuda_arch=none", when="+cuda", msg="set cuda_arch, such as 90")

    @property
    def build_targets(self):
        spec = self.spec
        targets = [f"MPI={int('+mpi' in spec)}", f"HUB={int('+hub' in spec)}"]
        if "+mpi" in spec:
            targets.append(f"MPICC={spec['mpi'].mpicc}")
        if "+cuda" in spec:
            codes = [f"-gencode arch=compute_{a},code=sm_{a}"
                     for a in spec.variants["cuda_arch"].value]
            targets += [f"CUDA={spec['cuda'].prefix}", f"CUDA_ARCH={' '.join(codes)}"]
        return targets

    @property
    def install_targets(self):
        return ["install", f"PREFIX={self.prefix}", *self.build_targets]
