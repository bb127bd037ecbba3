namespace Quantra.Client.Wire;

/// <summary>Puts a simulation together from its messages: the answers, then parts of the paths in order.</summary>
/// <param name="includesPaths">Whether the paths were requested.</param>
internal sealed class PathSimulationReader(bool includesPaths)
{
    private PathSimulation? _answers;
    private double[] _returns = [];
    private int _read;

    private int PathLength => _answers!.Symbols.Count * _answers.Days;

    /// <summary>Adds the next message.</summary>
    /// <exception cref="QuantraException">INTERNAL: the message does not fit the earlier ones.</exception>
    public void Add(V1.SimulatePathsResponse message)
    {
        if (_answers is null)
            ReadAnswers(message);
        else
            ReadPart(message);
    }

    /// <summary>Returns the simulation after the last message.</summary>
    /// <exception cref="QuantraException">INTERNAL: messages are missing.</exception>
    public PathSimulation ToSimulation()
    {
        if (_answers is null)
            throw InvalidResponse.Create($"it has no message");
        InvalidResponse.ThrowIfWrongLength("returns", _read, _returns.Length);
        return includesPaths ? _answers with { Returns = _returns } : _answers;
    }

    private static Estimate Estimate(V1.Estimate? estimate) => EstimateOrNull(estimate) ?? throw InvalidResponse.Create($"a probability is missing");

    private static Estimate? EstimateOrNull(V1.Estimate? estimate) =>
        estimate is null ? null : new(estimate.Value, estimate.Lower, estimate.Upper);

    private void ReadAnswers(V1.SimulatePathsResponse message)
    {
        _answers = new()
        {
            Symbols = [.. message.Symbols],
            AsOf = SessionNumber.ToDateOrNull(message.AsOfSession),
            AnchorPrice = ArrayBytes.Doubles(message.AnchorPrice),
            Days = message.Days,
            Paths = message.Paths,
            PastDays = message.PastDays,
            ForecastId = message.ForecastId,
            Model = message.Model,
            Version = message.Version,
            Warnings = [.. message.Warnings],
            Refusals = ResponseReader.Refusals(message.Refusals),
            Day = message.Day,
            ValueAtRisk = EstimateOrNull(message.ValueAtRisk),
            ExpectedShortfall = EstimateOrNull(message.ExpectedShortfall),
            Drawdown = EstimateOrNull(message.Drawdown),
            PriceProbabilities = [.. message.Prices.Select(one => new PriceProbability(one.Symbol, one.Price, Estimate(one.Above), Estimate(one.Touched)))],
            Returns = null,
        };
        InvalidResponse.ThrowIfWrongLength("anchor_price", _answers.AnchorPrice.Length, _answers.Symbols.Count);
        if (!includesPaths)
            return;
        var cells = (decimal)message.Paths * message.Symbols.Count * message.Days;
        if (message.Days < 1 || cells < 1 || cells > Array.MaxLength)
            throw InvalidResponse.Create($"it has {message.Paths} paths of {message.Symbols.Count} symbols over {message.Days} days");
        _returns = new double[(int)cells];
    }

    private void ReadPart(V1.SimulatePathsResponse message)
    {
        var part = ArrayBytes.Doubles(message.Returns);
        if (!includesPaths || part.Length == 0 || part.Length % PathLength != 0 || part.Length > _returns.Length - _read)
            throw InvalidResponse.Create($"a part of the paths has {part.Length} elements");
        if (message.FirstPath != _read / PathLength)
            throw InvalidResponse.Create($"path {message.FirstPath} came where path {_read / PathLength} was expected");
        part.CopyTo(_returns, _read);
        _read += part.Length;
    }
}
