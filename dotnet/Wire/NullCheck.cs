using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Wire;

/// <summary>
/// Refuses requests in which null stands where the types allow none, as programs without nullable checks write them; the message
/// names the place.
/// </summary>
/// <remarks>What is whole costs no allocation, as there may be a thousand of it.</remarks>
internal static class NullCheck
{
    private const string NoCovariates = "; leave it out, or write Covariates.None";

    /// <summary>Checks one request.</summary>
    /// <param name="request">To be sent.</param>
    /// <param name="parameter">That it is, or that it stands in.</param>
    /// <param name="index">Where in the parameter; null = it is the parameter.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Request(PredictionRequest? request, string parameter, long? index = null) => Request(request, new Place(parameter, "", index));

    /// <summary>Checks what is to be explained.</summary>
    /// <param name="request">To be sent.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Explanations(ManyExplanationsRequest request)
    {
        var place = new Place(nameof(request));
        Request(request.Instance, place with { Path = ".Instance" });
        Elements(request.Targets, place, ".Targets");
        Elements(request.Symbols, place, ".Symbols");
    }

    /// <summary>Checks what is to be explained of many instances.</summary>
    /// <param name="request">To be sent.</param>
    /// <exception cref="ArgumentException">Null was found, or there are no instances, or such of several models.</exception>
    public static void GlobalExplanation(GlobalExplanationRequest request)
    {
        var place = new Place(nameof(request));
        Present(request.Instances, place, ".Instances");
        Elements(request.Targets, place, ".Targets");
        if (request.Instances.Count == 0)
            throw new ArgumentException($"{nameof(request)}.Instances is empty; name at least one", nameof(request));
        for (var index = 0; index < request.Instances.Count; index++)
        {
            var instance = place with { Path = ".Instances", Index = index };
            Request(request.Instances[index], instance);
            var (model, first) = (request.Instances[index].Model, request.Instances[0].Model);
            if (model != first)
                throw new ArgumentException($"{instance} is of model {model}, the first of {first}; explain each model by itself", nameof(request));
        }
    }

    /// <summary>Checks what a session is to begin with.</summary>
    /// <param name="request">To be sent.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Session(SessionRequest request)
    {
        var place = new Place(nameof(request));
        Present(request.Model, place, ".Model");
        Present(request.Model.Text, place, ".Model.Text");
        Present(request.SessionId, place, ".SessionId");
        Present(request.Bars, place, ".Bars");
        Bars(request.Bars, place with { Member = ".Bars" });
        Present(request.Covariates, place, ".Covariates", NoCovariates);
        Covariates(request.Covariates, place with { Member = ".Covariates" });
    }

    /// <summary>Checks what is to be pushed to a session.</summary>
    /// <param name="bars">To be sent.</param>
    /// <param name="covariates">With them.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Push(BarPanel bars, Covariates covariates)
    {
        Bars(bars, new Place(nameof(bars)));
        Covariates(covariates, new Place(nameof(covariates)));
    }

    private static void Request([NotNull] PredictionRequest? request, Place place)
    {
        Present(request, place, "");
        Present(request.Model, place, ".Model");
        Present(request.Model.Text, place, ".Model.Text");
        Present(request.RequestId, place, ".RequestId");
        Present(request.Covariates, place, ".Covariates", NoCovariates);
        Covariates(request.Covariates, place with { Member = ".Covariates" });
        if (request.Bars is { } bars)
            Bars(bars, place with { Member = ".Bars" });
        if (request.Window is { } window)
            Window(window, place with { Member = ".Window" });
    }

    private static void Covariates(Covariates covariates, Place place)
    {
        Present(covariates.Observed, place, ".Observed");
        Present(covariates.Known, place, ".Known");
        Present(covariates.Numbers, place, ".Numbers");
        Present(covariates.Categories, place, ".Categories");
        foreach (var (name, texts) in covariates.Categories)
            Elements(texts, place, $".Categories[\"{name}\"]");
    }

    private static void Bars(BarPanel bars, Place place)
    {
        Elements(bars.Symbols, place, ".Symbols");
        Present(bars.Calendar, place, ".Calendar");
        Present(bars.Currency, place, ".Currency");
    }

    private static void Window(FeatureWindow window, Place place)
    {
        Elements(window.Symbols, place, ".Symbols");
        Elements(window.Features, place, ".Features");
        Present(window.SchemaHash, place, ".SchemaHash");
    }

    private static void Elements<T>(IReadOnlyList<T?>? list, Place place, string member)
        where T : class
    {
        Present(list, place, member);
        for (var index = 0; index < list.Count; index++)
        {
            if (list[index] is null)
                Present(list[index], place, FormattableString.Invariant($"{member}[{index}]"));
        }
    }

    private static void Present([NotNull] object? value, Place place, string member, string advice = "")
    {
        if (value is null)
            throw new ArgumentException($"{place}{member} is null{advice}", place.Parameter);
    }

    /// <summary>Where something stands, put into words only where something is wrong.</summary>
    private readonly record struct Place(string Parameter, string Path = "", long? Index = null, string Member = "")
    {
        /// <summary>Such as "request.Instances[3].Covariates".</summary>
        public override string ToString() => $"{Parameter}{Path}{(Index is { } index ? FormattableString.Invariant($"[{index}]") : "")}{Member}";
    }
}
