/* hardware.h -- hardware figures of a rank, for estimating the time of a step on other hardware.
 *
 * Units    FLOP/s, bytes, bytes/s, seconds; per rank, links and network in one direction.
 * Sources  mi250x (a GCD: half a module): AMD's MI250X data sheet; node and network from OLCF's
 *          Frontier user guide: 50 to 200 GB/s between two GCDs, four NICs of 25 GB/s per node
 *          mi300x, mi325x, mi355x: AMD's data sheets: 7 links of 64 GB/s, mi355x of 76.8 GB/s; a
 *          400 Gb/s NIC per device
 *          a100, h100, h200, b200: NVIDIA's data sheets of the 80 GB A100, of H100 and H200 as SXM
 *          modules, and of HGX B200; NICs of their DGX systems: 200 Gb/s per device with A100,
 *          400 Gb/s with the others.  Their variants, which only a device's name selects, also
 *          from data sheets: cards reach each other over PCIe, as NVLink bridges connect only two
 *          or four; NVLink connects the 72 devices of a GB200 NVL72
 *          trn1 (a NeuronCore, half a chip), trn2 (a logical core of two, a quarter of a chip):
 *          AWS's Neuron documentation of the chips; trn1.32xlarge has 800 Gb/s, trn2.48xlarge
 *          3.2 Tb/s.  It gives the total of both directions of a link; half is assumed for each
 *          Memory of GPUs is what nvidia-smi and rocm-smi show, such as 81559 MiB for an H100,
 *          which is not the round figure of a data sheet.  Host memory: DGX A100, H100, H200 and
 *          B200 with 2 TB, Frontier's nodes with 512 GB, trn1.32xlarge with 512 GiB,
 *          trn2.48xlarge with 2 TiB
 *          Between device and host: PCIe 4.0 x16 of a100, PCIe 5.0 x16 of later devices, in one
 *          direction; mi250x from OLCF's guide; trn1's and trn2's are assumed
 *          Latencies, and unmeasured cpu values, are assumed: a cluster of such machines with a
 *          100 Gb/s network.  Efficiency is fitted, see docs/estimates.md; a100 and b200 have
 *          h100's, mi325x and mi355x mi300x's */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"
#include "tensor/dtype.h"

/* Who makes it, for the libraries and the memory they use.  none: a CPU. */
enum hardware_vendor { VENDOR_none, VENDOR_nvidia, VENDOR_amd, VENDOR_aws };

/* Columns: name, what a rank is, peak bf16 and f32 FLOP/s, FP8 peak as a multiple of bf16's in
 * this program, fraction of the peak that large GEMMs reach, memory in bytes, memory bandwidth,
 * ranks per node, bandwidth within a node and between nodes, latency of a step of a collective,
 * vendor, host memory in bytes, bandwidth between device and host memory.  Zero: measured at run
 * time; for host memory, unknown. */
#define HARDWARE_LIST(X)                                                                           \
    X(cpu, "this machine", 0, 0, 1, 0, 0, 0, 1, 5e9, 12.5e9, 20e-6, VENDOR_none, 0, 0)             \
    X(mi250x, "one die of a module", 191.5e12, 47.9e12, 1, 0.42, 0x1p36, 1.6e12, 8, 100e9, 12.5e9, \
      5e-6, VENDOR_amd, 64e9, 36e9)                                                                \
    X(mi300x, "a device", 1307.4e12, 163.4e12, 1, 0.42, 192 * 0x1p30, 5.3e12, 8, 448e9, 50e9,      \
      5e-6, VENDOR_amd, 0, 64e9)                                                                   \
    X(mi325x, "a device", 1307.4e12, 163.4e12, 1, 0.42, 256 * 0x1p30, 6e12, 8, 448e9, 50e9, 5e-6,  \
      VENDOR_amd, 0, 64e9)                                                                         \
    X(mi355x, "a device", 2516.6e12, 157.3e12, 1, 0.42, 288 * 0x1p30, 8e12, 8, 537.6e9, 50e9,      \
      5e-6, VENDOR_amd, 0, 64e9)                                                                   \
    X(a100, "a device", 312e12, 19.5e12, 1, 0.65, 81920 * 0x1p20, 2.039e12, 8, 300e9, 25e9, 5e-6,  \
      VENDOR_nvidia, 250e9, 32e9)                                                                  \
    X(h100, "a device", 989.4e12, 66.9e12, 2, 0.65, 81559 * 0x1p20, 3.35e12, 8, 450e9, 50e9, 5e-6, \
      VENDOR_nvidia, 250e9, 64e9)                                                                  \
    X(h200, "a device", 989.4e12, 66.9e12, 2, 0.65, 143771 * 0x1p20, 4.8e12, 8, 450e9, 50e9, 5e-6, \
      VENDOR_nvidia, 250e9, 64e9)                                                                  \
    X(b200, "a device", 2250e12, 80e12, 2, 0.65, 183359 * 0x1p20, 8e12, 8, 900e9, 50e9, 5e-6,      \
      VENDOR_nvidia, 250e9, 64e9)                                                                  \
    X(trn1, "a core", 95.5e12, 24e12, 1, 0.38, 16 * 0x1p30, 410e9, 32, 96e9, 3.125e9, 10e-6,       \
      VENDOR_aws, 16 * 0x1p30, 16e9)                                                               \
    X(trn2, "a logical core of two", 166.75e12, 45.25e12, 1.95, 0.38, 24 * 0x1p30, 725e9, 64,      \
      160e9, 6.25e9, 10e-6, VENDOR_aws, 32 * 0x1p30, 16e9)

/* Variants of these devices with other rates.  Columns: what a device's name contains, name, peak
 * bf16 and f32 FLOP/s, ranks per node, bandwidth within a node. */
#define HARDWARE_VARIANTS(X)                                                                       \
    X("H100 PCIe", "h100-pcie", 756e12, 51e12, 8, 64e9)                                            \
    X("H100 NVL", "h100-nvl", 835e12, 60e12, 8, 64e9)                                              \
    X("H200 NVL", "h200-nvl", 835e12, 60e12, 8, 64e9)                                              \
    X("GB200", "gb200", 2500e12, 80e12, 72, 900e9)

enum hardware_row {
#define X(name, ...) HARDWARE_##name,
    HARDWARE_LIST(X)
#undef X
        HARDWARE_COUNT
};

/* "cpu|mi250x|...", the words of device.hardware. */
#define HARDWARE_WORD(name, ...) "|" #name
#define HARDWARE_WORDS           (&("" HARDWARE_LIST(HARDWARE_WORD))[1])

struct hardware {
    const char *name, *text;
    double bf16_flops, f32_flops;
    double float8; /* FP8 FLOP/s as a multiple of bf16's; 1: this program multiplies FP8 in bf16 */
    double efficiency;
    double memory_bytes, memory_bandwidth;
    double node_ranks, node_bandwidth, network_bandwidth, latency_s;
    enum hardware_vendor vendor;
    double host_bytes;     /* host memory of a rank; 0: unknown */
    double host_bandwidth; /* between device and host memory, in one direction */
};

/* Whether matrix units multiply the FP8 values of ops/float8.h.  Those of AMD's GPUs do not in this
 * program: MI300X and MI325X have the FNUZ variants only. */
static inline bool hardware_has_native_fp8(const struct hardware *h) { return h->float8 > 1; }

/* A row of the table. */
const struct hardware *hardware_row(enum hardware_row row);
/* The variant, or the row whose name ends a word of a device's name, such as "NVIDIA H200" or
 * "NVIDIA GH200 480GB".  A variant's efficiency, memory and host link are zero: measured.  NULL:
 * unknown, or a MIG instance, which has a part of the device's rates. */
const struct hardware *hardware_find(const char *device);
