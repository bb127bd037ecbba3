namespace Quantra.Client;

/// <summary>Intermediate or final result of a global explanation.</summary>
public sealed record GlobalExplanationProgress
{
    /// <summary>Name of the model.</summary>
    public required string Model { get; init; }

    /// <summary>Version of the model.</summary>
    public required int Version { get; init; }

    /// <summary>SHA-256 of the model's weights.</summary>
    public required string WeightsHash { get; init; }

    /// <summary>One entry per target, in the order of the request; empty while no instance has been explained.</summary>
    public required IReadOnlyList<TargetImportance> Targets { get; init; }

    /// <summary>Instances processed so far, including refused ones.</summary>
    public required int Done { get; init; }

    /// <summary>Total number of instances.</summary>
    public required int Total { get; init; }

    /// <summary>Instances without any explanation.</summary>
    public required int Refused { get; init; }

    /// <summary>Symbols without an explanation in the other instances.</summary>
    public required int RefusedSymbols { get; init; }

    /// <summary>Reasons for the first few of both.</summary>
    public required IReadOnlyList<ExplanationRefusal> Refusals { get; init; }

    /// <inheritdoc/>
    public bool Equals(GlobalExplanationProgress? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@1: 3 of 20 instances, 1 refused".</returns>
    public override string ToString()
    {
        var refused = Refused > 0 ? FormattableString.Invariant($", {Refused} refused") : "";
        return FormattableString.Invariant($"{Model}@{Version}: {Done} of {MessageFormat.Count(Total, "instance")}{refused}");
    }

    private object?[] Parts() =>
    [
        Model,
        Version,
        WeightsHash,
        ValueEquality.Of(Targets),
        Done,
        Total,
        Refused,
        RefusedSymbols,
        ValueEquality.Of(Refusals),
    ];
}
