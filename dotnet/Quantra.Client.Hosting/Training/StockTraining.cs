namespace Quantra.Client.Hosting;

/// <summary>A training: the most common options of <c>quantra train stock</c>, and any others as arguments.</summary>
public sealed record StockTraining
{
    /// <summary>File of daily bars, .csv or .parquet.</summary>
    public required string Bars { get; init; }

    /// <summary>Folder of the artifact, for example models/mine/1. It must not exist unless Resume is set.</summary>
    public required string Out { get; init; }

    /// <summary>Kind of model, for example "lstm"; null = the default.</summary>
    public string? Model { get; init; }

    /// <summary>Calendar of the exchange, for example "XNYS"; null = the default.</summary>
    public string? Calendar { get; init; }

    /// <summary>Whether to continue from the last checkpoint of a stopped training, if there is one.</summary>
    public bool Resume { get; init; }

    /// <summary>More flags and their values, for example "--epochs" and "20"; see <c>quantra train stock --help</c>.</summary>
    public IReadOnlyList<string> Arguments { get; init; } = [];
}
