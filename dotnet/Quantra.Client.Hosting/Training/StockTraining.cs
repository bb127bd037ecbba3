namespace Quantra.Client.Hosting;

/// <summary>What to train: <c>quantra train stock</c> with its most common flags, and any others.</summary>
public sealed record StockTraining
{
    /// <summary>File of daily bars, .csv or .parquet.</summary>
    public required string Bars { get; init; }

    /// <summary>Folder of the artifact, such as models/mine/1. It must not exist, unless Resume is set.</summary>
    public required string Out { get; init; }

    /// <summary>Kind of model, such as "lstm"; null = what the trainer takes by itself.</summary>
    public string? Model { get; init; }

    /// <summary>Calendar of the exchange, such as "XNYS"; null = what the trainer takes by itself.</summary>
    public string? Calendar { get; init; }

    /// <summary>Whether to go on with the last checkpoint of a training that was stopped, if there is one.</summary>
    public bool Resume { get; init; }

    /// <summary>Further flags and their values, such as "--epochs" and "20"; <c>quantra train stock --help</c> lists them.</summary>
    public IReadOnlyList<string> Arguments { get; init; } = [];
}
