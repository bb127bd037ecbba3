using System.Runtime.Intrinsics.Arm;
using System.Runtime.Intrinsics.X86;
using System.Text.Json;

namespace Quantra.Client.Managed;

/// <summary>Bits of the vectors that kernels use. Results do not depend on it.</summary>
internal enum VectorWidth
{
    /// <summary>NEON.</summary>
    Bits128 = 128,

    /// <summary>AVX2 and FMA.</summary>
    Bits256 = 256,

    /// <summary>AVX-512.</summary>
    Bits512 = 512,
}

/// <summary>Creates networks from artifacts. What this version does not know is rejected by its name.</summary>
internal static class NetworkFactory
{
    /// <summary>The widest vectors of this processor.</summary>
    /// <exception cref="QuantraException">The processor has neither AVX2 with FMA nor NEON.</exception>
    public static VectorWidth Widest()
    {
        if (Avx512F.IsSupported && Avx2.IsSupported && Fma.IsSupported)
            return VectorWidth.Bits512;
        if (Avx2.IsSupported && Fma.IsSupported)
            return VectorWidth.Bits256;
        if (AdvSimd.Arm64.IsSupported)
            return VectorWidth.Bits128;
        throw new QuantraError(
            QuantraStatus.FailedPrecondition,
            QuantraReason.ConfigurationInvalid,
            "this processor has neither AVX2 with FMA nor NEON, which forecasts in this process need; use Quantra.Client with a server").ToException();
    }

    /// <summary>Creates a network.</summary>
    /// <param name="network">The manifest's entry: kind, version, settings and arithmetic.</param>
    /// <param name="sizes">Sizes of its inputs.</param>
    /// <param name="target">What it forecasts.</param>
    /// <param name="levels">Quantile levels, ascending.</param>
    /// <param name="weights">Its weights by name.</param>
    /// <param name="width">Width of the vectors; null = the widest of this processor.</param>
    /// <exception cref="QuantraException">
    /// ARTIFACT_INVALID: the kind, its version, a setting or a weight is unknown, missing or invalid.
    /// CONFIGURATION_INVALID: the processor is too old.
    /// </exception>
    public static INetwork Create(
        JsonRecord network,
        InputSizes sizes,
        Target target,
        double[] levels,
        IReadOnlyDictionary<string, Tensor> weights,
        VectorWidth? width = null)
    {
        var settings = NetworkSettings.Read(network);
        var taken = new NetworkWeights(weights);
        var created = (width ?? Widest()) switch
        {
            VectorWidth.Bits512 => Create<Wide512>(settings, sizes, target, levels, taken),
            VectorWidth.Bits256 => Create<Wide256>(settings, sizes, target, levels, taken),
            _ => Create<Wide128>(settings, sizes, target, levels, taken),
        };
        taken.End();
        return created;
    }

    private static INetwork Create<TVector>(
        NetworkSettings settings, InputSizes sizes, Target target, double[] levels, NetworkWeights weights)
        where TVector : struct, IVector<TVector> => settings.Kind switch
        {
            "lstm" or "gru" => new RecurrentNetwork<TVector>(weights, settings, sizes, target, levels),
            "tft" => new TftNetwork<TVector>(weights, settings, sizes, target, levels),
            "hybrid" => new HybridNetwork<TVector>(weights, settings, sizes, target, levels),
            "graph" => new GraphNetwork<TVector>(weights, settings, sizes, target, levels),
            "trees" => new TreesNetwork(weights, settings, sizes, target, levels),
            "har" or "garch" => new UnconditionalNetwork(weights, target, levels),
            _ => throw new InvalidOperationException(settings.Kind),
        };
}
