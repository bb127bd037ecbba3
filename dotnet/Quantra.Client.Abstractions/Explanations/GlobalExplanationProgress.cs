namespace Quantra.Client;

/// <summary>What is known of a model's inputs after some of the instances that were asked about; the last one is the result.</summary>
public sealed record GlobalExplanationProgress
{
    /// <summary>Name of the model that answers.</summary>
    public required string Model { get; init; }

    /// <summary>Version of the model that answers.</summary>
    public required int Version { get; init; }

    /// <summary>SHA-256 of the model's weights.</summary>
    public required string WeightsHash { get; init; }

    /// <summary>One for each target, in the order of the request; empty while no instance has been explained.</summary>
    public required IReadOnlyList<TargetImportance> Targets { get; init; }

    /// <summary>Instances so far, those included that were refused.</summary>
    public required int Done { get; init; }

    /// <summary>Instances in all.</summary>
    public required int Total { get; init; }

    /// <summary>Instances without any explanation.</summary>
    public required int Refused { get; init; }

    /// <summary>Symbols of the other instances without one.</summary>
    public required int RefusedSymbols { get; init; }

    /// <summary>Why, of the first few of both.</summary>
    public required IReadOnlyList<ExplanationRefusal> Refusals { get; init; }

    /// <inheritdoc/>
    public bool Equals(GlobalExplanationProgress? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "small@1: 3 of 20 instances, 1 refused".</returns>
    public override string ToString()
    {
        var refused = Refused > 0 ? FormattableString.Invariant($", {Refused} refused") : "";
        return FormattableString.Invariant($"{Model}@{Version}: {Done} of {Listed.Count(Total, "instance")}{refused}");
    }

    private object?[] Parts() =>
    [
        Model,
        Version,
        WeightsHash,
        ByValue.Of(Targets),
        Done,
        Total,
        Refused,
        RefusedSymbols,
        ByValue.Of(Refusals),
    ];
}
