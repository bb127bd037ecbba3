namespace Quantra.Client.Managed;

/// <summary>A network with its weights. Safe to use from several threads.</summary>
internal interface INetwork
{
    /// <summary>Computes quantiles in units of each window's scale.</summary>
    /// <param name="inputs">N windows.</param>
    /// <param name="units">[N, H, Q]; float32 numbers, except from kinds that compute in float64.</param>
    void Run(NetworkInputs inputs, Span<double> units);
}

/// <summary>A network whose outputs have gradients.</summary>
internal interface IDifferentiableNetwork : INetwork
{
    /// <summary>Computes quantiles in a way that allows their gradients.</summary>
    /// <param name="inputs">N windows, with known features for each.</param>
    INetworkTrace Trace(NetworkInputs inputs);
}

/// <summary>A network whose forecast of a row depends on other rows of its panel.</summary>
internal interface IPanelNetwork : IDifferentiableNetwork
{
    /// <summary>[U][k] nodes of the neighbours that a node's forecast depends on, -1 = none.</summary>
    int[][] Neighbours { get; }

    /// <summary>As <see cref="INetwork.Run"/>, with the scores of the rows.</summary>
    /// <param name="inputs">N windows, panel by panel, with their nodes.</param>
    /// <param name="units">[N, H, Q]</param>
    /// <param name="scores">[N, H] larger for rows that are expected to do better than others of their panel; empty to leave them out.</param>
    void Rank(NetworkInputs inputs, Span<double> units, Span<double> scores);
}

/// <summary>The computation of some windows, which knows the gradients of its outputs. Not thread-safe.</summary>
internal interface INetworkTrace : IDisposable
{
    /// <summary>[N, H, Q] quantiles in units of each window's scale.</summary>
    double[] Units { get; }

    /// <summary>The weights that the network gave to its inputs, of a single window; null if it has none.</summary>
    NetworkShares? Shares { get; }

    /// <summary>Computes the gradient of a weighted sum of the units.</summary>
    /// <param name="weights">[N, H, Q]</param>
    InputGradients Gradients(ReadOnlySpan<double> weights);
}

/// <summary>Gradients with respect to observed [N, T, F], known [N, T + D, K] and static [N, C] inputs.</summary>
internal sealed record InputGradients(float[] Observed, float[] Known, float[] Static);

/// <summary>The weights of a network's own layers for one window; empty if it does not have the layer.</summary>
/// <param name="Past">[T, variables]</param>
/// <param name="Future">[D, variables]</param>
/// <param name="Static">[variables]</param>
/// <param name="Attention">[H, T + D]</param>
internal sealed record NetworkShares(float[] Past, float[] Future, float[] Static, float[] Attention);
