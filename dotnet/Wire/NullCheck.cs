using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Wire;

/// <summary>
/// Rejects requests with null in places where the types do not allow it, as programs without nullable checks may send them. The
/// message names the place.
/// </summary>
/// <remarks>Valid requests allocate nothing here, because there may be a thousand of them.</remarks>
internal static class NullCheck
{
    private const string NoCovariates = "; omit it, or set Covariates.None";

    /// <summary>Checks one request.</summary>
    /// <param name="request">The request.</param>
    /// <param name="parameter">Name of the parameter that is or holds the request.</param>
    /// <param name="index">Position of the request in the parameter; null = the parameter is the request.</param>
    /// <exception cref="ArgumentException">A member is null.</exception>
    public static void Request(PredictionRequest? request, string parameter, long? index = null) => Request(request, new MemberPath(parameter, "", index));

    public static void Explanation(ManyExplanationsRequest request)
    {
        var path = new MemberPath(nameof(request));
        Request(request.Instance, path with { Path = ".Instance" });
        CheckElements(request.Targets, path, ".Targets");
        CheckElements(request.Symbols, path, ".Symbols");
        ThrowIfNull(request.Method, path, ".Method");
    }

    /// <exception cref="ArgumentException">A member is null, there are no instances, or they are of several models.</exception>
    public static void GlobalExplanation(GlobalExplanationRequest request)
    {
        var path = new MemberPath(nameof(request));
        ThrowIfNull(request.Instances, path, ".Instances");
        CheckElements(request.Targets, path, ".Targets");
        ThrowIfNull(request.Method, path, ".Method");
        if (request.Instances.Count == 0)
            throw new ArgumentException($"{nameof(request)}.Instances is empty; add at least one instance", nameof(request));
        for (var index = 0; index < request.Instances.Count; index++)
        {
            var instance = path with { Path = ".Instances", Index = index };
            Request(request.Instances[index], instance);
            var (model, first) = (request.Instances[index].Model, request.Instances[0].Model);
            if (model != first)
                throw new ArgumentException($"{instance} uses model {model}, but the first instance uses {first}; explain each model separately", nameof(request));
        }
    }

    public static void PathSimulation(PathSimulationRequest request)
    {
        var path = new MemberPath(nameof(request));
        Request(request.Instance, path with { Path = ".Instance" });
        ThrowIfNull(request.Holdings, path, ".Holdings");
        CheckElements(request.PriceLevels, path, ".PriceLevels");
        for (var index = 0; index < request.PriceLevels.Count; index++)
            ThrowIfNull(request.PriceLevels[index].Symbol, path with { Path = ".PriceLevels", Index = index }, ".Symbol");
    }

    public static void Session(SessionRequest request)
    {
        var path = new MemberPath(nameof(request));
        ThrowIfNull(request.Model, path, ".Model");
        ThrowIfNull(request.Model.Text, path, ".Model.Text");
        ThrowIfNull(request.SessionId, path, ".SessionId");
        ThrowIfNull(request.Bars, path, ".Bars");
        CheckBars(request.Bars, path with { Member = ".Bars" });
        ThrowIfNull(request.Covariates, path, ".Covariates", NoCovariates);
        CheckCovariates(request.Covariates, path with { Member = ".Covariates" });
    }

    public static void Push(BarPanel bars, Covariates covariates)
    {
        CheckBars(bars, new MemberPath(nameof(bars)));
        CheckCovariates(covariates, new MemberPath(nameof(covariates)));
    }

    private static void Request([NotNull] PredictionRequest? request, MemberPath path)
    {
        ThrowIfNull(request, path, "");
        ThrowIfNull(request.Model, path, ".Model");
        ThrowIfNull(request.Model.Text, path, ".Model.Text");
        ThrowIfNull(request.RequestId, path, ".RequestId");
        ThrowIfNull(request.Covariates, path, ".Covariates", NoCovariates);
        CheckCovariates(request.Covariates, path with { Member = ".Covariates" });
        if (request.Bars is { } bars)
            CheckBars(bars, path with { Member = ".Bars" });
        if (request.Window is { } window)
            CheckWindow(window, path with { Member = ".Window" });
    }

    private static void CheckCovariates(Covariates covariates, MemberPath path)
    {
        ThrowIfNull(covariates.Observed, path, ".Observed");
        ThrowIfNull(covariates.Known, path, ".Known");
        ThrowIfNull(covariates.Numbers, path, ".Numbers");
        ThrowIfNull(covariates.Categories, path, ".Categories");
        foreach (var (name, texts) in covariates.Categories)
            CheckElements(texts, path, $".Categories[\"{name}\"]");
    }

    private static void CheckBars(BarPanel bars, MemberPath path)
    {
        CheckElements(bars.Symbols, path, ".Symbols");
        ThrowIfNull(bars.Calendar, path, ".Calendar");
        ThrowIfNull(bars.Currency, path, ".Currency");
    }

    private static void CheckWindow(FeatureWindow window, MemberPath path)
    {
        CheckElements(window.Symbols, path, ".Symbols");
        CheckElements(window.Features, path, ".Features");
        ThrowIfNull(window.SchemaHash, path, ".SchemaHash");
    }

    private static void CheckElements<T>(IReadOnlyList<T?>? list, MemberPath path, string member)
        where T : class
    {
        ThrowIfNull(list, path, member);
        for (var index = 0; index < list.Count; index++)
        {
            if (list[index] is null)
                ThrowIfNull(list[index], path, FormattableString.Invariant($"{member}[{index}]"));
        }
    }

    private static void ThrowIfNull([NotNull] object? value, MemberPath path, string member, string advice = "")
    {
        if (value is null)
            throw new ArgumentException($"{path}{member} is null{advice}", path.Parameter);
    }

    /// <summary>The path of a member. Formatted only for an error.</summary>
    private readonly record struct MemberPath(string Parameter, string Path = "", long? Index = null, string Member = "")
    {
        /// <summary>For example "request.Instances[3].Covariates".</summary>
        public override string ToString() => $"{Parameter}{Path}{(Index is { } index ? FormattableString.Invariant($"[{index}]") : "")}{Member}";
    }
}
